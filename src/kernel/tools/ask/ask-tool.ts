import { isJsonObject, type JsonObject } from '../../core/json.ts';
import { builtinTool, errorOutput, type Question, READING_TRAITS, type Tool } from '../tool.ts';

const ASK_ID = 'rye/agent/ask';

/** `rye/agent/ask` puts a question to a person. Its result is the answer, which matches the schema. */
export function createAskTool(): Tool {
  return builtinTool({
    id: ASK_ID,
    description:
      'Asks a person a question and waits for the answer, which may take days. Use it only for what you cannot find out.',
    properties: {
      question: { type: 'string', minLength: 1, description: 'The question, complete in itself.' },
      schema: {
        type: 'object',
        description: 'JSON Schema of the answer, such as {"enum": ["yes", "no"]}. Default: a text.',
      },
    },
    required: ['question'],
    traits: { ...READING_TRAITS, risk: 'safe' },
    question: questionOf,
    run: () => errorOutput('No person can be asked here.', { code: 'usage' }),
  });
}

function questionOf({ question, schema }: JsonObject): Question {
  return {
    text: typeof question === 'string' ? question : '',
    schema: isJsonObject(schema) ? schema : { type: 'string' },
  };
}
