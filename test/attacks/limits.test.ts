import { describe } from 'vitest';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { BudgetRow } from '../../src/kernel/storage/store.ts';
import { calls, text, toolUse, type WireRequest, type WireTurn } from '../helpers/wire-server.ts';
import { directive, harmless, type Lab } from './lab.ts';

const USAGE = { input_tokens: 2000, output_tokens: 200 };
const DONE: WireTurn = { steps: [text('done')], usage: USAGE };
const CHILDREN = '<execute><directive>child</directive></execute>';

/** The directive that asks, by its first message. */
const nameOf = ({ body }: WireRequest): string =>
  /<directive name="(\w+)"/.exec(JSON.stringify(body.messages[0]).replaceAll('\\', ''))?.[1] ?? '';

const start = (index: number, more: object = {}) =>
  toolUse('rye_execute', { item_type: 'directive', item_id: 'child', ...more }, `call_${index}`);

function committed(rows: readonly BudgetRow[], id: string): number {
  const own = rows.find((row) => row.thread_id === id)?.actual ?? 0;
  return rows
    .filter((row) => row.parent_id === id)
    .reduce((sum, child) => {
      const below = committed(rows, child.thread_id);
      return sum + (child.status === 'active' ? Math.max(child.reserved, below) : below);
    }, own);
}

/** A root that starts `wanted` children in one answer; the ledger is audited whenever a model is asked. */
async function many(
  lab: Lab,
  {
    wanted,
    root,
    child,
    more = {},
  }: { wanted: number; root: string; child: string; more?: object },
) {
  const store = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
  const overcommitted: string[] = [];
  let asked = 0;
  await lab.model(async (request) => {
    const rows = await store.ledger.rows();
    for (const row of rows)
      if (committed(rows, row.thread_id) > row.max) overcommitted.push(row.thread_id);
    if (nameOf(request) === 'child') return DONE;
    asked += 1;
    if (asked > 1) return DONE;
    return {
      ...calls(...Array.from({ length: wanted }, (_, index) => start(index, more))),
      usage: USAGE,
    };
  });
  lab.signed('directives/child.md', directive('child', { limits: child }));
  lab.signed('directives/job.md', directive('job', { limits: root, permissions: CHILDREN }));
  const result = await lab.run('job');
  const codes = (await lab.events(result.thread_id))
    .filter(({ event_type: type }) => type === 'tool_settled')
    .map(({ payload }) => (payload as { code?: string }).code ?? 'ok');
  const rows = await store.ledger.rows();
  const spent = rows.reduce((sum, row) => sum + row.actual, 0);
  const max = rows.find((row) => row.thread_id === result.thread_id)?.max ?? 0;
  const left = await store.ledger.remaining(result.thread_id);
  store.close();
  return {
    status: result.status,
    overcommitted,
    within: spent <= max,
    started: codes.filter((code) => code === 'ok').length,
    refused: [...new Set(codes.filter((code) => code !== 'ok'))],
    leaked: max - spent - left,
  };
}

describe('hard caps under calls that run side by side', () => {
  harmless([
    {
      // Requirement: caps-hold-in-parallel
      name: 'starts ten children in one answer where three are allowed',
      expected: {
        status: 'completed',
        overcommitted: [],
        within: true,
        started: 3,
        refused: ['limit_spawns'],
        leaked: 0,
      },
      run: async (lab) =>
        await many(lab, {
          wanted: 10,
          root: 'turns="5" spend="5" spawns="3" depth="3"',
          child: 'turns="3" spend="0.2"',
        }),
    },
    {
      name: 'starts eight children in one answer, each for half of the budget',
      expected: {
        status: 'completed',
        overcommitted: [],
        within: true,
        refused: ['budget_insufficient'],
        leaked: 0,
      },
      run: async (lab) => {
        const { started: _some, ...outcome } = await many(lab, {
          wanted: 8,
          root: 'turns="5" spend="1.00" spawns="50" depth="3"',
          child: 'turns="3" spend="0.45"',
        });
        return outcome;
      },
    },
    {
      name: 'starts six children in one answer, each with a budget above the whole of it',
      expected: { status: 'completed', overcommitted: [], within: true, leaked: 0 },
      run: async (lab) => {
        const {
          started: _some,
          refused: _codes,
          ...outcome
        } = await many(lab, {
          wanted: 6,
          root: 'turns="5" spend="0.50" spawns="50" depth="3"',
          child: 'turns="3" spend="100"',
          more: { limit_overrides: { spend: 1000, turns: 1000, spawns: 1000 } },
        });
        return outcome;
      },
    },
  ]);
});
