import { describe, expect, it } from 'vitest';
import { AnswerWatch } from '../../../src/features/rules/stream/answer-watch.ts';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import type { LoopPorts } from '../../../src/kernel/loop/ports.ts';
import { validateInput } from '../../../src/kernel/tools/schema.ts';
import { textOutput } from '../../../src/kernel/tools/tool.ts';
import { createToolSet } from '../../../src/kernel/tools/tool-set.ts';
import { answers, type Played, play, toolOf } from '../scripted.ts';
import { call, ruleOf, sessionOf } from './helpers.ts';

const WRITE_ID = 'rye/file-system/write';
const NO_KEY = ruleOf('no-key', '\\bKEY[0-9]{4}\\b', { scope: ['tool:write(*.ts)'] });
const NO_KEY_EDIT = ruleOf('no-key-edit', '\\bKEY[0-9]{4}\\b', { scope: ['tool:edit'] });
const FILE = { path: 'a.ts', content: 'KEY1234' };
/** Escaped twice: what the model writes has no key in it, what the tool gets has. */
const HIDDEN = '{"path":"a.ts","content":"\\u004bEY1234"}';

/** Lets a model call tools by the real tool set, and tells what they were given. */
async function called(name: string, input: JsonObject): Promise<Played & { ran: JsonObject[] }> {
  const ran: JsonObject[] = [];
  const scripted = (schema: JsonObject) => ({
    schema,
    run: (given: JsonObject) => {
      ran.push(given);
      return Promise.resolve(textOutput('done'));
    },
  });
  const write = toolOf(WRITE_ID, scripted({ type: 'object', required: ['path', 'content'] }));
  const edits = { type: 'array', items: { type: 'object' } };
  const edit = toolOf(
    'rye/file-system/edit',
    scripted({ type: 'object', properties: { path: { type: 'string' }, edits } }),
  );
  const execute = toolOf('rye/execute', scripted({ type: 'object' }));
  const tools = [write, edit, execute];
  const session = sessionOf([NO_KEY, NO_KEY_EDIT]);
  const ports: Partial<LoopPorts> = {
    projectPath: '/home/ada/project',
    watchStream: (turn, record) => new AnswerWatch(session, turn, record),
    tools: createToolSet({ tools, loadTool: () => Promise.resolve(undefined) }),
    validate: validateInput,
  };
  const whole = answers('', [{ id: 'c1', name, input }]);
  const streamed = call(name, input, { id: 'c1' });
  const played = await play({
    turns: [
      [...whole.slice(0, -2), ...streamed, ...whole.slice(-2)],
      answers('Hm.'),
      answers('Good.'),
    ],
    plan: { capabilities: ['rye.execute.tool.*'], behavior: { nudge: true } },
    tools: { rye_execute: execute, rye_file_system_write: write },
    ports,
  });
  return { ...played, ran };
}

describe('a rule judges what a call runs, however it is spelled', () => {
  const through = (parameters: JsonObject[string]): JsonObject => ({
    item_type: 'tool',
    item_id: WRITE_ID,
    parameters,
  });
  it.each<[string, string, JsonObject]>([
    ['by its name', 'rye_file_system_write', FILE],
    ['by its id', WRITE_ID, FILE],
    ['by a name that is nearly right', 'rye_file-system.write', FILE],
    ['through execute', 'rye_execute', through(FILE)],
    ['through execute by its id', 'rye/execute', through(FILE)],
    ['through execute, parameters as text', 'rye_execute', through(JSON.stringify(FILE))],
    ['through execute, parameters as text with escapes', 'rye_execute', through(HIDDEN)],
    [
      'through execute of execute',
      'rye_execute',
      { item_type: 'tool', item_id: 'rye/execute', parameters: through(HIDDEN) },
    ],
    [
      'with a list as text',
      'rye_file_system_edit',
      { path: 'a.ts', edits: '[{"new_text":"\\u004bEY1234"}]' },
    ],
  ])('%s', async (_, name, input) => {
    const { ran, events, outcome } = await called(name, input);
    expect(ran).toEqual([]);
    expect(events.filter(({ event_type }) => event_type === 'rule_injection')).toHaveLength(1);
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Good.' });
  });

  it('and lets the same calls run where no rule is broken', async () => {
    const plain = { path: 'a.ts', content: 'plain' };
    const { ran, events } = await called('rye_execute', through(JSON.stringify(plain)));
    expect(ran).toEqual([plain]);
    expect(events.some(({ event_type }) => event_type === 'rule_injection')).toBe(false);
  });
});
