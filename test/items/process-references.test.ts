import { describe, expect, it } from 'vitest';
import { parseDirective } from '../../src/kernel/items/directive.ts';
import { directiveFile, errorOf } from './helpers.ts';

const STEP = (name: string, text = 'x') =>
  `<step name="${name}"><execute item_type="tool" item_id="a/b"><param name="p">${text}</param></execute></step>`;
const INPUTS =
  '<inputs><input name="dry_run" type="boolean">d</input><input name="files" type="array">f</input></inputs>';
const HEAD =
  '<metadata><description>d</description><category></category><author>x</author></metadata>';

const parse = (process: string, inputs = INPUTS, outputs = '') =>
  parseDirective(
    directiveFile(`${HEAD}\n${inputs}${outputs}<process>\n${process}\n</process>`),
    'a.md',
  );

/** Good references, and their parts in which one letter makes them wrong. */
const GOOD = `${STEP('check')}
<if condition="\${steps.check.text} contains bad or \${inputs.dry_run} != true">${STEP('stop', '${steps.check.data.x} $HOME ${HOME}')}</if>
<foreach item="f" in="\${inputs.files}"><if condition="f.ok and f_index > 2">${STEP('each', '${f.name} ${inputs.dry_run}')}</if></foreach>
<if condition="steps.each.results exists">${STEP('end')}</if>`;
const OUTPUTS =
  '<outputs><output name="o" type="string" from="${steps.end.text}">o</output></outputs>';

describe('the references of a process', () => {
  it('to earlier steps, inputs and items are taken', () => {
    expect(parse(GOOD, INPUTS, OUTPUTS).steps).toHaveLength(4);
    // without declarations any input may be given
    expect(parse(GOOD, '', OUTPUTS).steps).toHaveLength(4);
  });

  it.each([
    ['steps.check.text', 'steps.chek.text', 5],
    ['steps.check.text', 'steps.check.txt', 5],
    ['steps.check.text', 'steps.stop.text', 5],
    ['steps.check.text', 'stpes.check.text', 5],
    ['{inputs.dry_run} !=', '{inputs.dryrun} !=', 5],
    ['{inputs.dry_run} !=', '{dry_run} !=', 5],
    ['steps.check.data.x', 'steps.chek.data.x', 5],
    ['{inputs.files}', '{inputs.file}', 6],
    ['f.ok', 'g.ok', 6],
    ['f_index', 'f_idx', 6],
    ['${inputs.dry_run}<', '${inputs.dry_rum}<', 6],
    ['steps.each.results', 'f.results', 7],
    ['steps.end.text', 'steps.endd.text', undefined],
  ])('%s as %s is refused at its place', (good, bad, line) => {
    const process = GOOD.replace(good, bad);
    const outputs = OUTPUTS.replace(good, bad);
    expect(process + outputs).not.toBe(GOOD + OUTPUTS);
    const error = errorOf(() => parse(process, INPUTS, outputs));
    expect([error.code, error.message]).toEqual([
      'directive_malformed',
      expect.stringContaining('does not exist there'),
    ]);
    if (line !== undefined) expect(error.location?.line).toBe(line + 1);
  });
});
