export interface WireBlock {
  readonly type: string;
  readonly text?: string;
  readonly id?: string;
  readonly tool_use_id?: string;
  readonly name?: string;
  readonly input?: unknown;
  readonly content?: string | readonly WireBlock[];
  readonly is_error?: boolean;
  readonly thinking?: string;
  readonly signature?: string;
  readonly data?: string;
  readonly cache_control?: unknown;
}

export interface WireMessage {
  readonly role: string;
  readonly content: string | readonly WireBlock[];
}

/** The members of a Messages request that tests look at. */
export interface WireBody {
  readonly model: string;
  readonly max_tokens: number;
  readonly stream?: boolean;
  readonly system?: string | readonly WireBlock[];
  readonly messages: readonly WireMessage[];
  readonly tools?: readonly (WireBlock & { readonly input_schema?: unknown })[];
  readonly tool_choice?: { readonly type: string; readonly name?: string };
  readonly thinking?: { readonly type: string; readonly budget_tokens?: number };
  readonly output_config?: { readonly effort?: string };
  readonly temperature?: number;
}

/** The rules of the Messages API that a request breaks, one sentence each. */
export function checkRequest(body: WireBody): string[] {
  if (!Array.isArray(body.messages) || body.messages.length === 0) return ['there are no messages'];
  return [...checkTurns(body.messages), ...checkTools(body), ...checkLimits(body)];
}

function checkTurns(messages: readonly WireMessage[]): string[] {
  const problems: string[] = [];
  if (messages[0]?.role !== 'user') problems.push('the first message is not from the user');
  if (messages.at(-1)?.role !== 'user') problems.push('the last message is not from the user');
  const seen = new Set<string>();
  for (const [at, message] of messages.entries()) {
    if (messages[at - 1]?.role === message.role)
      problems.push(`messages ${at - 1} and ${at} have one role`);
    problems.push(...checkBlocks(message, at), ...checkPairs(messages, at));
    for (const id of idsOf(message, 'tool_use')) {
      if (seen.has(id)) problems.push(`the call id ${id} is used twice`);
      seen.add(id);
    }
  }
  return problems;
}

function checkTools({ tools = [] }: WireBody): string[] {
  return tools.flatMap(({ name = '', input_schema }) => [
    ...(/^[a-zA-Z0-9_-]{1,128}$/.test(name)
      ? []
      : [`the tool name ${JSON.stringify(name)} is malformed`]),
    ...((input_schema as { type?: unknown } | undefined)?.type === 'object'
      ? []
      : [`the schema of ${name} is not of the type object`]),
  ]);
}

function checkLimits(body: WireBody): string[] {
  const problems: string[] = [];
  if (!(body.max_tokens > 0)) problems.push('max_tokens is missing');
  const marks = JSON.stringify(body).split('"cache_control"').length - 1;
  if (marks > 4) problems.push(`there are ${marks} cache marks, more than 4`);
  const budget = body.thinking?.budget_tokens;
  if (budget !== undefined && (budget < 1024 || budget >= body.max_tokens)) {
    problems.push(`the thinking budget ${budget} does not fit max_tokens ${body.max_tokens}`);
  }
  if (budget !== undefined && !isThoughtOpen(body.messages)) {
    problems.push('thinking has a budget, and the answer with the calls does not begin with it');
  }
  return problems;
}

/** True if the last message has no results, or the answer before them begins with thinking. */
function isThoughtOpen(messages: readonly WireMessage[]): boolean {
  const [answer, news] = [-2, -1].map((at) => {
    const content = messages.at(at)?.content ?? '';
    return typeof content === 'string' ? [] : content;
  });
  if (!news?.some(({ type }) => type === 'tool_result')) return true;
  return answer?.[0]?.type.includes('thinking') === true;
}

interface BlockRule {
  readonly problem: string;
  readonly broken: (block: WireBlock, role: string) => boolean;
}

const BLOCK_RULES: readonly BlockRule[] = [
  {
    problem: 'an empty text',
    broken: ({ type, text = '' }) => type === 'text' && text.trim() === '',
  },
  {
    problem: 'a call by the user',
    broken: ({ type }, role) => type === 'tool_use' && role !== 'assistant',
  },
  {
    problem: 'a result by the model',
    broken: ({ type }, role) => type === 'tool_result' && role !== 'user',
  },
  {
    problem: 'an error with something else than text',
    broken: ({ is_error: isError, content = '' }) =>
      isError === true &&
      typeof content !== 'string' &&
      content.some(({ type }) => type !== 'text'),
  },
  {
    problem: 'thinking without signature',
    broken: ({ type, signature = '' }) => type === 'thinking' && signature === '',
  },
  {
    problem: 'a malformed call id',
    broken: ({ type, id = '' }) => type === 'tool_use' && !/^[a-zA-Z0-9_-]+$/.test(id),
  },
  {
    problem: 'a cache mark on thinking',
    broken: ({ type, cache_control }) => cache_control !== undefined && type.includes('thinking'),
  },
];

function checkBlocks({ role, content }: WireMessage, at: number): string[] {
  const blocks = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
  if (blocks.length === 0) return [`message ${at} is empty`];
  return blocks.flatMap((block, index) =>
    BLOCK_RULES.filter(({ broken }) => broken(block, role)).map(
      ({ problem }) => `message ${at}, block ${index} is ${problem}`,
    ),
  );
}

/** Each call of a message has exactly one result in the next one, and there results come first. */
function checkPairs(messages: readonly WireMessage[], at: number): string[] {
  const message = messages[at];
  if (message === undefined) return [];
  const results = idsOf(message, 'tool_result');
  const before = messages[at - 1];
  const calls = before === undefined ? [] : idsOf(before, 'tool_use');
  const problems: string[] = [];
  if (calls.toSorted().join() !== results.toSorted().join()) {
    problems.push(
      `message ${at} has results for [${results.join()}], the calls were [${calls.join()}]`,
    );
  }
  const kinds = typeof message.content === 'string' ? [] : message.content.map(({ type }) => type);
  if (kinds.slice(0, results.length).some((kind) => kind !== 'tool_result')) {
    problems.push(`message ${at} has something before its results`);
  }
  return problems;
}

function idsOf({ content }: WireMessage, type: 'tool_use' | 'tool_result'): string[] {
  if (typeof content === 'string') return [];
  return content.flatMap((block) => {
    if (block.type !== type) return [];
    return [(type === 'tool_use' ? block.id : block.tool_use_id) ?? ''];
  });
}
