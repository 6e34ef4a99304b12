import type { AssistantBlock, StopReason } from '../core/message.ts';
import type { StreamFault } from './failure.ts';

type Meaning = 'end' | 'max_tokens' | 'content_filtered' | 'broken';

/**
 * Words with which vendors name the end of an answer, in lower case without signs between letters. Sources: the references of
 * Anthropic, OpenAI, Google, Mistral, Cohere, Amazon Bedrock, DeepSeek, z.ai, Moonshot, vLLM, SGLang, Ollama and LiteLLM.
 */
const WORDS: Readonly<Record<Meaning, string>> = {
  end: 'stop end endturn pauseturn eos eostoken eot stopsequence stoptoken complete completed finish finished done toolcall toolcalls tooluse functioncall functioncalls',
  max_tokens:
    'length maxtokens maxlength maxoutputtokens maxnewtokens modellength tokenlimit truncated contextlength contextlengthexceeded contextwindowexceeded modelcontextwindowexceeded',
  content_filtered:
    'contentfilter contentfiltered contentpolicyviolation filtered blocked blocklist guardrailintervened imagesafety moderation prohibitedcontent recitation refusal safety sensitive spii',
  broken:
    'abort aborted cancel canceled cancelled error failed incomplete insufficientsystemresource interrupted malformedfunctioncall malformedmodeloutput malformedresponse malformedtoolcall malformedtooluse networkerror overloaded repetition repetitiontruncation servererror timeout toomanytoolcalls unavailable unexpectedtoolcall',
};

const MEANINGS: ReadonlyMap<string, Meaning> = new Map(
  Object.entries(WORDS).flatMap(([meaning, words]) =>
    words.split(' ').map((word) => [word, meaning as Meaning] as const),
  ),
);

/**
 * Returns why an answer ended, or the fault that it is. `reason` is the provider's word; absent, the answer ended. A word
 * that is not known is no end, unless the answer calls tools: a fragment must not become a result.
 */
export function stopReasonOf(
  reason: string | undefined,
  content: readonly AssistantBlock[],
): Exclude<StopReason, 'aborted'> | StreamFault {
  // gateways written in Python send FinishReason.STOP
  const last = reason?.split('.').at(-1) ?? '';
  const word = last.toLowerCase().replaceAll(/[^a-z0-9]/g, '');
  const meaning = word === '' ? 'end' : MEANINGS.get(word);
  if (meaning === 'max_tokens' || meaning === 'content_filtered') return meaning;
  if (meaning === 'broken') {
    const message = `the server broke the answer off: ${reason}`;
    return { type: 'answer_broken_off', message };
  }
  // not every server sends tool_calls, and some send it without a call
  if (content.some(({ type }) => type === 'tool_call')) return 'tool_calls';
  if (meaning === 'end') return 'end';
  const message = `the answer ended with ${JSON.stringify(reason)}, which is no end that rye knows`;
  return { type: 'unknown_stop_reason', message };
}
