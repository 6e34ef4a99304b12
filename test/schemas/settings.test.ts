import { readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { parse } from 'yaml';
import { readThreadConfig } from '../../src/kernel/app/settings.ts';
import { isRecord, type JsonObject } from '../../src/kernel/core/json.ts';
import type { Config } from '../../src/kernel/items/config-fs.ts';
import { settings } from '../../src/kernel/schemas/settings.ts';
import { runs } from '../helpers/runs.ts';
import { parseThreadConfig as parseByHand } from './by-hand/settings.ts';
import { expectSame, mutated } from './old-and-new.ts';

const FOLDER = new URL('../../.ai/config/', import.meta.url);
const NAMES = [...Object.keys(settings.shape), 'agent/capability_risk'];
const SHIPPED = new Map(
  NAMES.filter((name) => name !== 'agent/hooks' && name !== 'agent/approvals').map((name) => [
    name,
    parse(readFileSync(new URL(`${name}.yaml`, FOLDER), 'utf8')) as JsonObject,
  ]),
);

/** Removes what was added after the reader by hand was replaced. */
function withoutLater({ fleet: _fleet, ...known }: JsonObject): JsonObject {
  if (!isRecord(known['tools'])) return known;
  const { deny_read: _denied, ...tools } = known['tools'];
  return { ...known, tools };
}

function shipped(name: string): JsonObject {
  return SHIPPED.get(name) ?? {};
}

const READ = [
  'agent/coordination',
  'agent/error_classification',
  'agent/resilience',
  'interpolation',
] as const;

/** The shipped configuration with one other file. */
function configWith(name: string, value: JsonObject): Config {
  const load: Config['load'] = (other) =>
    Promise.resolve({
      value: other === name ? value : shipped(other),
      origins: new Map([
        ['tools.parallel', `${name}.yaml:3`],
        ['concurrency.max_children', `${name}.yaml:5`],
      ]),
    });
  return { load, loadFrom: load, names: () => [] };
}

/** The outcome of a promise as a call that returns or throws. */
async function settled<T>(promise: Promise<T>): Promise<() => T> {
  try {
    const value = await promise;
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

it('configuration is read and refused as by hand', async () => {
  const change = fc.constantFrom(...READ).chain((name) =>
    mutated([withoutLater(shipped(name))])
      .filter(isRecord)
      .map((value) => configWith(name, value as JsonObject)),
  );
  await fc.assert(
    fc.asyncProperty(change, async (config) => {
      const byHand = await settled(parseByHand(config));
      const bySchema = await settled(
        readThreadConfig(config).then(
          ({ risks: _risks, hooks: _hooks, limitCeiling: _ceiling, ...others }) => others,
        ),
      );
      // by hand, a group that is not a mapping was ignored
      if (/^(?!.*patterns).*, not a mapping$/.test(messageOf(bySchema))) return;
      expectSame(byHand, bySchema);
    }),
    runs(500),
  );
});

function messageOf(call: () => unknown): string {
  try {
    call();
    return '';
  } catch (error) {
    return error instanceof Error ? error.message : '';
  }
}

it('limits that no file sets have no origin', async () => {
  const config = configWith('agent/resilience', {});
  const { limitDefaults } = await readThreadConfig(config);
  expect(limitDefaults).toEqual({ limits: {}, origins: {} });
});

it('a group that is not a mapping is refused', async () => {
  const config = configWith('agent/coordination', { recovery: 'resume' });
  await expect(readThreadConfig(config)).rejects.toThrow(
    'config agent/coordination: recovery is "resume", not a mapping',
  );
});

it('the shipped files have exactly the declared members', () => {
  for (const name of [
    'agent/agent',
    'agent/coordination',
    'agent/resilience',
    'agent/rules',
  ] as const) {
    const { shape } = settings.shape[name];
    expect(Object.keys(shipped(name)).toSorted()).toEqual(Object.keys(shape).toSorted());
    expect(settings.shape[name].safeParse(shipped(name)).success).toBe(true);
  }
});
