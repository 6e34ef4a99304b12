import type { KeySummary } from '../../app/api/items.ts';
import { compact } from '../../core/json.ts';
import { argument, defineCommand, defineGroup, flag, text } from '../command.ts';
import { confirm, readTextSource } from '../input.ts';
import { formatTable, printResult } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

const yes = flag('Do not ask; without a terminal, rye never asks', { short: 'y' });

const init = defineCommand({
  name: 'init',
  summary: 'Create the signing key',
  examples: ['rye keys init'],
  run: async (call) => {
    const key = await withRye(call, (rye) => rye.keys.init());
    return printResult(call, key, () =>
      call.global.quiet ? [] : [`signing key ${key.key_id} in ${key.path}`],
    );
  },
});

const list = defineCommand({
  name: 'list',
  summary: 'List your own and trusted keys',
  examples: ['rye keys list --json'],
  run: async (call) => {
    const keys = await withRye(call, (rye) => rye.keys.list());
    return printResult(call, { keys, total: keys.length }, () => {
      const rows = keys.map((key) => [key.key_id, key.owner, key.source, stateOf(key)]);
      return formatTable(['KEY', 'OWNER', 'SOURCE', 'STATE'], rows, call.io.stdout);
    });
  },
});

function stateOf({ revoked, revoked_at, trusted }: KeySummary): string {
  if (revoked) return revoked_at === undefined ? 'revoked' : `revoked ${revoked_at}`;
  return trusted ? 'trusted' : 'not trusted';
}

const exportKey = defineCommand({
  name: 'export',
  summary: 'Print the public key as PEM',
  examples: ['rye keys export > alice.pem'],
  run: async (call) => {
    const key = await withRye(call, (rye) => rye.keys.export());
    return printResult(call, key, () => [key.pem.trimEnd()]);
  },
});

const trust = defineCommand({
  name: 'trust',
  summary: 'Trust a public key from a PEM or TOML file',
  arguments: { file: argument('The key file, or - for standard input') },
  options: { owner: text('NAME', "Name of the key's owner"), yes },
  examples: ['rye keys trust alice.pem --owner alice', 'rye keys trust - < alice.pem'],
  run: async (call) => {
    const { owner } = call.options;
    const { file } = call.args;
    const content = await readTextSource(file, 'rye keys trust', call.io);
    const source = file === '-' ? 'standard input' : file;
    const key = await withRye(call, async (rye) => {
      const offer = await rye.keys.inspect(content, compact({ owner, source }));
      const scope = offer.projects === undefined ? 'everywhere' : offer.projects.join(', ');
      await confirm(
        call,
        [
          `key ${offer.key_id} of ${offer.owner}, trusted in: ${scope}`,
          'Everything signed with it will run with your permissions. Compare the fingerprint with the owner first.',
        ],
        'Trust it?',
      );
      return await rye.keys.trust(content, compact({ owner }));
    });
    return printResult(call, key, () => [oneLine(`trusted ${key.key_id} (${key.owner})`)]);
  },
});

const revoke = defineCommand({
  name: 'revoke',
  summary: 'Revoke a key',
  arguments: { keyid: argument('The fingerprint that `rye keys list` shows') },
  options: { reason: text('TEXT', 'Recorded with the revocation'), yes },
  examples: ['rye keys revoke 0123456789abcdef --reason "laptop lost"'],
  run: async (call) => {
    const { keyid } = call.args;
    const { reason } = call.options;
    const key = await withRye(call, async (rye) => {
      await confirm(
        call,
        ['rye will reject everything signed with it. You cannot undo this.'],
        `Revoke ${keyid}?`,
      );
      return await rye.keys.revoke(keyid, compact({ reason }));
    });
    return printResult(call, key, () => [`revoked ${key.key_id}`]);
  },
});

const rotate = defineCommand({
  name: 'rotate',
  summary: 'Create a new signing key, endorsed by the old one',
  options: { yes },
  examples: ['rye keys rotate'],
  run: async (call) => {
    const rotation = await withRye(call, async (rye) => {
      const { key_id } = await rye.keys.export();
      await confirm(
        call,
        [`A new key will sign from now on. The key ${key_id} stays trusted until you revoke it.`],
        'Create a new signing key?',
      );
      return await rye.keys.rotate();
    });
    return printResult(call, rotation, () => [
      `signing key ${rotation.key_id} replaces ${rotation.old_key_id}`,
    ]);
  },
});

export const keys = defineGroup({
  examples: ['rye keys list'],
  commands: [init, list, exportKey, trust, revoke, rotate],
});
