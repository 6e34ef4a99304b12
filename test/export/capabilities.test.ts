import { describe, expect, it } from 'vitest';
import type { ThreadPlan } from '../../src/kernel/core/plan.ts';
import { renderCapabilities } from '../../src/kernel/export/capabilities.ts';

const PLAN = {
  directive: { id: 'demo/a', version: '1.0.0' },
  model: { provider: 'anthropic', id: 'opus' },
  capabilities: ['rye.execute.tool.rye.bash', 'rye.fetch.*'],
  risks: [{ capability: 'rye.execute.tool.rye.bash', risk: 'elevated' }],
  acknowledged: [{ risk: 'elevated', reason: 'builds\n\n## Granted', origin: 'a.md:7' }],
  tools: [
    { id: 'rye/bash', name: 'rye_bash', risk: 'elevated', preloaded: true },
    { id: 'rye/search', name: 'rye_search', risk: 'safe', preloaded: false },
  ],
} as unknown as ThreadPlan;

describe('renderCapabilities', () => {
  it('lists what was granted, acknowledged and offered', () => {
    const text = renderCapabilities(PLAN, [
      { name: 'rye_bash', description: 'Runs ``` things', input_schema: {} },
    ]);
    expect(text).toContain('Directive `demo/a` 1.0.0, model `anthropic/opus`.');
    expect(text).toContain('- `rye.execute.tool.rye.bash` (elevated)\n- `rye.fetch.*` (unknown)\n');
    expect(text).toContain('- elevated: `builds ## Granted` (a.md:7)\n');
    expect(text).toContain('- `rye_search`: rye/search (safe, deferred)\n');
    expect(text).toMatch(/\n````json\n\[[^]*"Runs ``` things"[^]*\n````\n$/);
    expect(text.match(/^## Granted$/gm)).toHaveLength(1);
  });

  it('states that nothing is granted', () => {
    const text = renderCapabilities({ ...PLAN, capabilities: [], acknowledged: [], tools: [] }, []);
    expect(text).toContain(
      '## Granted\n\nNothing.\n\n## Acknowledged risks\n\nNone.\n\n## Tools\n\nNone.\n',
    );
  });
});
