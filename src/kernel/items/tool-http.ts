import { isJsonObject, type JsonObject, type JsonValue, parseJson } from '../core/json.ts';
import { type Advice, plainText, type RuntimeQuestion, refuse } from './tool-advice.ts';

/** A request in which `{name}` is replaced with a parameter and `${NAME}` with a variable of rye's environment. */
export interface HttpTemplate {
  readonly method: string;
  /** Scheme, host and port are literal, so that the manifest's signature covers the destination. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Absent: all parameters as one JSON object, for methods with a body. */
  readonly body?: JsonValue;
  readonly timeoutSeconds: number;
}

/** Matches `${NAME}`, `${NAME:-default}` and `{parameter}`, in one pass, so that no value is expanded again. */
export const REFERENCE = /\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}|\{([A-Za-z_]\w*)\}/g;

/** The syntax of a body that is written as text: values are encoded for it, so that none can add members or fields. */
export type BodySyntax = 'json' | 'form' | 'xml' | 'text';

/** Returns the syntax of a text body; undefined if values cannot be put into it safely. */
export function bodySyntax(
  body: string,
  { 'content-type': type = 'application/json' }: Readonly<Record<string, string>>,
): BodySyntax | undefined {
  const [media = ''] = type.toLowerCase().split(';');
  if (/[/+]json\s*$/.test(media)) {
    return parseJson(body.replaceAll(REFERENCE, '0')) === undefined ? undefined : 'json';
  }
  if (/^application\/x-www-form-urlencoded\s*$/.test(media)) return 'form';
  if (/[/+](?:xml|html)\s*$/.test(media)) return 'xml';
  return /^text\/(?:plain|markdown)\s*$/.test(media) ? 'text' : undefined;
}

/** True for a body that is exactly one parameter. */
export function isWholeParameter(body: string): boolean {
  return /^\{[A-Za-z_]\w*\}$/.test(body);
}

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'];
const DEFAULT_TIMEOUT_SECONDS = 120;
const HOST =
  /^https?:\/\/[A-Za-z0-9.-]+(?::\d+)?(?=[/?]|$)|^https?:\/\/\[[0-9a-fA-F:]+\](?::\d+)?(?=[/?]|$)/;

/** Reads `method`, `url`, `headers`, `auth`, `body` and `timeout`; throws `tool_unsupported` for unsafe or ineffective settings. */
export function readHttpTemplate(question: RuntimeQuestion, config: JsonObject): HttpTemplate {
  const no = (advice: Advice): never => {
    throw refuse(question, advice, 'config');
  };
  const method = plainText(config['method'], 'GET').toUpperCase();
  if (!METHODS.includes(method)) {
    no({
      message: `the HTTP method ${method} is unknown`,
      hint: `Use one of ${METHODS.join(', ')}.`,
    });
  }
  const url = textOf(config['url']) ?? '';
  if (!HOST.test(url)) {
    no({
      message: `the URL ${JSON.stringify(url)} does not begin with a literal scheme and host`,
      hint: 'Write the host out, such as url: https://api.example.com/v1/{id}. Parameters and variables belong after it.',
    });
  }
  const { body } = config;
  const headers = { ...headersOf(config['headers'], no), ...authOf(config['auth'], no) };
  const hasBody = !['GET', 'HEAD'].includes(method);
  if (!hasBody && body !== undefined && body !== null) {
    no({
      message: `${method} requests have no body`,
      hint: 'Put the parameters into the query of the url: ?name={name}.',
    });
  }
  assertEncodable(body, headers, no);
  const template = {
    method,
    url,
    headers,
    timeoutSeconds: timeoutOf(config['timeout'], no),
    ...(body === undefined || body === null ? {} : { body }),
  };
  const sendsAll = hasBody && template.body === undefined;
  const used = JSON.stringify([url, headers, template.body ?? null]);
  const ignored = question.parameters.find(
    (name) => !sendsAll && !used.includes(`{${name}}`) && !used.includes('{params_json}'),
  );
  if (ignored !== undefined) {
    no({
      message: `the request does not use the parameter "${ignored}"`,
      hint: `Put {${ignored}} into the url, a header or the body, or remove the parameter.`,
    });
  }
  return template;
}

/** Refuses a text body whose syntax is unknown, so that a value could add parts to the request. */
function assertEncodable(
  body: JsonValue | undefined,
  headers: HttpTemplate['headers'],
  no: Refuse,
): void {
  if (typeof body !== 'string' || isWholeParameter(body) || body.search(REFERENCE) === -1) return;
  if (bodySyntax(body, headers) !== undefined) return;
  no({
    message: 'parameters cannot be put safely into this body',
    hint: 'Write the body as a mapping or as JSON text, or name its syntax in headers: content-type is application/x-www-form-urlencoded, application/xml or text/plain.',
  });
}

type Refuse = (advice: Advice) => never;

function headersOf(value: JsonValue | undefined, no: Refuse): Record<string, string> {
  if (value === undefined || value === null) return {};
  const entries = isJsonObject(value) ? Object.entries(value) : [['', '']];
  return Object.fromEntries(
    entries.map(([name = '', text]) => {
      const line = textOf(text);
      return /^[A-Za-z0-9-]+$/.test(name) && line !== undefined && !/[\r\n\0]/.test(line)
        ? [name.toLowerCase(), line]
        : no({
            message: `the header ${JSON.stringify(name)} is not a name with one line of text`,
            hint: 'Write headers: {Accept: application/json}.',
          });
    }),
  );
}

/** Reads `bearer` with a token, or `api_key` with a key and its header. Both must name variables, because keys do not belong in files. */
function authOf(value: JsonValue | undefined, no: Refuse): Record<string, string> {
  if (value === undefined || value === null) return {};
  const auth = isJsonObject(value) ? value : {};
  const secret = textOf(auth['token']) ?? textOf(auth['key']) ?? '';
  if (!/^\$\{[A-Za-z_]\w*\}$/.test(secret)) {
    return no({
      message: 'the credential of "auth" is not the name of a variable',
      hint: 'Write token: "${NAME}" and set NAME in the environment or in ~/.ai/.env; keys do not belong in files.',
    });
  }
  if (auth['type'] === 'bearer') return { authorization: `Bearer ${secret}` };
  if (auth['type'] === 'api_key') {
    return { [(textOf(auth['header']) ?? 'x-api-key').toLowerCase()]: secret };
  }
  return no({
    message: `the auth type ${JSON.stringify(auth['type'])} is unknown`,
    hint: 'Use bearer (token) or api_key (key, header).',
  });
}

function timeoutOf(value: JsonValue | undefined, no: Refuse): number {
  if (value === undefined || value === null) return DEFAULT_TIMEOUT_SECONDS;
  if (typeof value === 'number' && Number.isFinite(value) && value > 0) return value;
  return no({
    message: 'the timeout is not a positive number of seconds',
    hint: 'Write timeout: 30.',
  });
}

function textOf(value: JsonValue | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}
