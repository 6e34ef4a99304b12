import { INTERRUPT_MODES, REPEAT_MODES, type RuleSettings } from '../core/plan.ts';
import type { Config } from '../items/config-fs.ts';
import { Reader } from './settings.ts';

const NAME = 'agent/rules';

/** The group of stream rules over all spaces. Errors: `config_invalid` with the place. */
export async function readRuleSettings(config: Config): Promise<RuleSettings> {
  const reader = new Reader(NAME, await config.load(NAME));
  return {
    enabled: reader.boolean('enabled', true),
    context_mode: reader.oneOf('context_mode', ['discard', 'keep'], 'discard'),
    interrupt_mode: reader.oneOf('interrupt_mode', INTERRUPT_MODES, 'always'),
    repeat_mode: reader.oneOf('repeat_mode', REPEAT_MODES, 'once'),
    repeat_gap: Math.floor(reader.number('repeat_gap', 10)),
    builtin_rules: reader.boolean('builtin_rules', true),
    disabled_rules: reader.texts('disabled_rules'),
    max_interrupts_per_run: Math.floor(reader.number('max_interrupts_per_run', 5)),
    buffer_limit: Math.max(1024, Math.floor(reader.number('buffer_limit', 65_536))),
  };
}
