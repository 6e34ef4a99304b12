/** The parts of a chat completions request that the rules read. */
export interface ChatBody {
  readonly model: string;
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly { readonly function: { name: string; parameters: unknown } }[];
  readonly tool_choice?: unknown;
  readonly stream?: boolean;
  readonly stream_options?: { readonly include_usage?: boolean };
  readonly response_format?: unknown;
  readonly max_tokens?: number;
  readonly max_completion_tokens?: number;
  readonly [member: string]: unknown;
}

export interface ChatMessage {
  readonly role: string;
  readonly content?: string | null | readonly { readonly type: string; readonly text?: string }[];
  readonly tool_call_id?: string;
  readonly tool_calls?: readonly {
    readonly id: string;
    readonly type: string;
    readonly function: { readonly name: string; readonly arguments: string };
  }[];
  readonly [member: string]: unknown;
}

/** Problems for which the API would refuse a request, one sentence each; Mistral has its own rules. */
export function checkChatRequest(body: ChatBody, dialect = 'openai'): string[] {
  const own = dialect === 'mistral' ? checkMistral(body) : checkUsage(body);
  return [...own, ...checkShape(body), ...checkTools(body), ...checkPairs(body.messages)];
}

function checkUsage(body: ChatBody): string[] {
  return body.stream_options?.include_usage === true ? [] : ['no usage is asked for'];
}

/** Mistral refuses unknown members, long call ids, and a user message after a result. */
function checkMistral({ stream_options: unknown, messages }: ChatBody): string[] {
  const ids = messages.flatMap(({ tool_calls = [], tool_call_id }) => [
    ...tool_calls.map(({ id }) => id),
    ...(tool_call_id === undefined ? [] : [tool_call_id]),
  ]);
  return [
    ...(unknown === undefined ? [] : ['stream_options: Extra inputs are not permitted']),
    ...ids.flatMap((id) => (/^[a-zA-Z0-9]{9}$/.test(id) ? [] : [`Tool call id was ${id}`])),
    ...messages.flatMap(({ role }, at) =>
      role === 'user' && messages[at - 1]?.role === 'tool'
        ? ["Unexpected role 'user' after role 'tool'"]
        : [],
    ),
  ];
}

function checkShape(body: ChatBody): string[] {
  const problems: string[] = [];
  if (body.stream !== true) problems.push('the request does not stream');
  if (!((body.max_tokens ?? body.max_completion_tokens ?? 0) > 0)) problems.push('no token limit');
  if (body.messages.length === 0) problems.push('there are no messages');
  return [
    ...problems,
    ...body.messages.flatMap((message, at) =>
      RULES.filter(({ broken }) => broken(message)).map(
        ({ problem }) => `message ${at} ${problem}`,
      ),
    ),
  ];
}

const ROLES: ReadonlySet<string> = new Set(['system', 'user', 'assistant', 'tool']);

const RULES: readonly {
  readonly problem: string;
  readonly broken: (message: ChatMessage) => boolean;
}[] = [
  { problem: 'has an unknown role', broken: ({ role }) => !ROLES.has(role) },
  { problem: 'is empty', broken: ({ content }) => content?.length === 0 },
  {
    problem: 'is empty',
    broken: ({ content, tool_calls = [] }) => !content && tool_calls.length === 0,
  },
  { problem: 'has an empty list of calls', broken: ({ tool_calls }) => tool_calls?.length === 0 },
  {
    problem: 'shows an image, and is not of the user',
    broken: ({ role, content }) =>
      role !== 'user' &&
      Array.isArray(content) &&
      content.some(({ type }) => type.startsWith('image')),
  },
];

function checkTools({ tools }: ChatBody): string[] {
  if (tools === undefined) return [];
  if (tools.length === 0) return ['the list of tools is empty'];
  return tools.flatMap(({ function: { name, parameters } }) => [
    ...(/^[a-zA-Z0-9_-]{1,64}$/.test(name) ? [] : [`the tool name ${name} is malformed`]),
    ...((parameters as { type?: unknown }).type === 'object' ? [] : [`${name} takes no object`]),
  ]);
}

/** The results of an answer's calls follow it at once, each exactly once. */
function checkPairs(messages: readonly ChatMessage[]): string[] {
  const problems: string[] = [];
  let open = new Set<string>();
  const seen = new Set<string>();
  for (const [at, { role, tool_calls = [], tool_call_id = '' }] of messages.entries()) {
    if (role === 'tool') {
      if (!open.delete(tool_call_id)) problems.push(`message ${at} answers no open call`);
      continue;
    }
    if (open.size > 0) problems.push(`message ${at} comes before all calls are answered`);
    open = new Set(tool_calls.map(({ id }) => id));
    for (const call of tool_calls) {
      if (seen.has(call.id)) problems.push(`the call id ${call.id} is used twice`);
      seen.add(call.id);
      if (!isObjectText(call.function.arguments))
        problems.push(`the arguments of ${call.id} are no JSON object`);
    }
  }
  if (open.size > 0) problems.push('the last calls are not answered');
  return problems;
}

function isObjectText(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
