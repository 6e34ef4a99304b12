import {
  chmodSync,
  linkSync,
  mkdirSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe } from 'vitest';
import { renderTrustedKey, trustedKeySubject } from '../../src/kernel/trust/key-files.ts';
import { generateKeyPair, readPrivateKey } from '../../src/kernel/trust/keys.ts';
import { signText } from '../../src/kernel/trust/signature.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { attacks, directive, harmless, type Lab } from './lab.ts';

const KEYS = '~/.ai/config/keys';
const PRIVATE = `${KEYS}/signing/private_key.pem`;

const plan = (lab: Lab) => lab.rye().threads.plan({ directiveId: 'job' });

/** A key file of the stranger as it would be in a trusted folder. */
const strangersFile = (lab: Lab): string => renderTrustedKey({ key: lab.stranger, owner: 'me' });

function jobByStranger(lab: Lab): void {
  lab.signed('directives/job.md', directive('job'), lab.stranger);
}

describe('the signing key', () => {
  attacks([
    {
      name: 'is readable by the group',
      code: 'key_unsafe',
      run: (lab) => {
        chmodSync(lab.path(PRIVATE), 0o640);
        lab.write('directives/job.md', directive('job'));
        return lab.rye().items.sign('directive', 'job');
      },
    },
    {
      name: 'is readable by the group, asked for by a thread',
      code: 'key_unsafe',
      run: (lab) => {
        chmodSync(lab.path(PRIVATE), 0o644);
        return lab.run('hello');
      },
    },
    {
      name: 'lies in a folder that others can enter',
      code: 'key_unsafe',
      run: (lab) => {
        chmodSync(lab.path(`${KEYS}/signing`), 0o755);
        return lab.run('hello');
      },
    },
    {
      name: 'is a link to a file elsewhere',
      code: 'key_unsafe',
      run: (lab) => {
        renameSync(lab.path(PRIVATE), join(lab.home, 'k.pem'));
        symlinkSync(join(lab.home, 'k.pem'), lab.path(PRIVATE));
        return lab.run('hello');
      },
    },
    {
      name: 'has a second name in the project',
      code: 'key_unsafe',
      run: (lab) => {
        linkSync(lab.path(PRIVATE), join(lab.project, 'notes.txt'));
        return lab.run('hello');
      },
    },
    {
      // Requirement: key-trusts-itself
      name: 'is missing',
      code: 'key_missing',
      run: (lab) => {
        removeFolder(lab.path(`${KEYS}/signing`));
        return lab.run('hello');
      },
    },
    {
      name: 'is truncated',
      code: 'key_unsafe',
      run: (lab) => {
        lab.write(PRIVATE, '-----BEGIN PRIVATE KEY-----\n');
        return lab.run('hello');
      },
    },
    {
      name: 'does not belong to the public key beside it',
      code: 'key_unsafe',
      run: (lab) => {
        lab.write(`${KEYS}/signing/public_key.pem`, lab.stranger.pem);
        return lab.run('hello');
      },
    },
    {
      name: 'would be overwritten by keys init',
      code: 'already_exists',
      run: (lab) => lab.rye().keys.init(),
    },
    {
      name: 'was revoked and signs on',
      code: 'key_revoked',
      run: async (lab) => {
        await lab.rye().keys.revoke(lab.key().keyId);
        return await lab.run('hello');
      },
    },
  ]);
});

describe('whom to trust', () => {
  attacks([
    {
      // Requirement: project-cannot-vouch
      name: 'brings its own trusted key in the project',
      code: 'key_untrusted',
      run: (lab) => {
        lab.write(`config/keys/trusted/${lab.stranger.keyId}.toml`, strangersFile(lab));
        jobByStranger(lab);
        return plan(lab);
      },
    },
    {
      name: 'brings its own trusted key, signed by itself',
      code: 'key_untrusted',
      run: (lab) => {
        lab.signed(
          `config/keys/trusted/${lab.stranger.keyId}.toml`,
          strangersFile(lab),
          lab.stranger,
        );
        jobByStranger(lab);
        return plan(lab);
      },
    },
    {
      // Requirement: project-cannot-loosen-trust
      name: 'brings a trust policy that asks for nothing',
      code: 'unsigned',
      run: (lab) => {
        lab.write('config/trust.yaml', 'execute: off\ncontext: off\nconfig: off\nfetch: off\n');
        lab.write('directives/job.md', directive('job'));
        return plan(lab);
      },
    },
    {
      name: 'brings a trust policy that a stranger signed',
      code: 'unsigned',
      run: (lab) => {
        lab.signed('config/trust.yaml', 'execute: off\n', lab.stranger);
        lab.write('directives/job.md', directive('job'));
        return plan(lab);
      },
    },
    {
      name: "breaks the user's trust policy",
      code: 'unsigned',
      run: (lab) => {
        lab.write('~/.ai/config/trust.yaml', 'execute: [off\n');
        lab.write('directives/job.md', directive('job'));
        return plan(lab);
      },
    },
    {
      name: 'plants a key in a trusted folder that the group can write',
      code: 'key_untrusted',
      run: (lab) => {
        const path = lab.write(`${KEYS}/trusted/${lab.stranger.keyId}.toml`, strangersFile(lab));
        chmodSync(path, 0o600);
        chmodSync(lab.path(`${KEYS}/trusted`), 0o770);
        jobByStranger(lab);
        return plan(lab);
      },
    },
    {
      // Requirement: exposed-keys-ignored
      name: 'plants a key in a trusted file that everybody can write',
      code: 'key_untrusted',
      run: (lab) => {
        const path = lab.write(`${KEYS}/trusted/${lab.stranger.keyId}.toml`, strangersFile(lab));
        chmodSync(lab.path(`${KEYS}/trusted`), 0o700);
        chmodSync(path, 0o666);
        jobByStranger(lab);
        return plan(lab);
      },
    },
    {
      name: 'gives a foreign key the file name of another fingerprint',
      code: 'key_untrusted',
      run: (lab) => {
        mkdirSync(lab.path(`${KEYS}/trusted`), { mode: 0o700 });
        const path = lab.path(`${KEYS}/trusted/${lab.stranger.keyId}.toml`);
        const other = readPrivateKey(generateKeyPair().privatePem, 'other');
        writeFileSync(path, renderTrustedKey({ key: other, owner: 'x' }), { mode: 0o600 });
        jobByStranger(lab);
        return plan(lab);
      },
    },
    {
      name: 'edits a trusted key file that the user signed',
      code: 'key_untrusted',
      run: async (lab) => {
        await lab.rye().keys.trust(lab.stranger.pem, { owner: 'ada' });
        const path = `${KEYS}/trusted/${lab.stranger.keyId}.toml`;
        writeFileSync(lab.path(path), lab.read(path).replace('"ada"', '"eve"'));
        jobByStranger(lab);
        return plan(lab);
      },
    },
    {
      name: 'links a trusted key file to the project',
      code: 'key_untrusted',
      run: (lab) => {
        const mine = lab.write('mine.toml', strangersFile(lab));
        mkdirSync(lab.path(`${KEYS}/trusted`), { mode: 0o700 });
        symlinkSync(mine, lab.path(`${KEYS}/trusted/${lab.stranger.keyId}.toml`));
        jobByStranger(lab);
        return plan(lab);
      },
    },
    {
      name: 'uses a key that the user confirmed for another project',
      code: 'key_untrusted',
      run: (lab) => {
        mkdirSync(lab.path(`${KEYS}/trusted`), { mode: 0o700 });
        const text = renderTrustedKey({ key: lab.stranger, owner: 'x', projects: ['/elsewhere'] });
        const path = lab.path(`${KEYS}/trusted/${lab.stranger.keyId}.toml`);
        writeFileSync(path, text, { mode: 0o600 });
        jobByStranger(lab);
        return plan(lab);
      },
    },
    {
      name: 'uses a key after its revocation',
      code: 'key_revoked',
      run: async (lab) => {
        await lab.rye().keys.trust(lab.stranger.pem);
        jobByStranger(lab);
        await lab.rye().keys.revoke(lab.stranger.keyId);
        return await plan(lab);
      },
    },
    {
      // Requirement: revocation-final
      name: 'empties the file of a revocation',
      code: 'key_revoked',
      run: async (lab) => {
        await lab.rye().keys.trust(lab.stranger.pem);
        jobByStranger(lab);
        await lab.rye().keys.revoke(lab.stranger.keyId);
        lab.write(`${KEYS}/revoked/${lab.stranger.keyId}.toml`, '');
        return await plan(lab);
      },
    },
    {
      name: 'trusts a revoked key again',
      code: 'key_revoked',
      run: async (lab) => {
        await lab.rye().keys.trust(lab.stranger.pem);
        await lab.rye().keys.revoke(lab.stranger.keyId);
        return await lab.rye().keys.trust(lab.stranger.pem);
      },
    },
    {
      // Requirement: mutual-vouching
      name: 'has two keys vouch for each other',
      code: 'key_untrusted',
      run: (lab) => {
        const friend = readPrivateKey(generateKeyPair().privatePem, 'friend');
        mkdirSync(lab.path(`${KEYS}/trusted`), { mode: 0o700 });
        for (const [key, voucher] of [
          [lab.stranger, friend],
          [friend, lab.stranger],
        ] as const) {
          const text = renderTrustedKey({ key, owner: 'x' });
          const signed = signText({
            text,
            style: 'hash',
            subject: trustedKeySubject(key.keyId),
            key: voucher,
            now: 0,
          });
          writeFileSync(lab.path(`${KEYS}/trusted/${key.keyId}.toml`), signed, { mode: 0o600 });
        }
        jobByStranger(lab);
        return plan(lab);
      },
    },
    {
      name: 'signs with the old key after a rotation that ended in its revocation',
      code: 'key_revoked',
      run: async (lab) => {
        lab.signed('directives/job.md', directive('job'));
        const { old_key_id: old } = await lab.rye().keys.rotate();
        await lab.rye().keys.revoke(old);
        return await plan(lab);
      },
    },
    {
      // Requirement: revocation-voids-old-files
      name: 'puts an older signed version back after the key was replaced and revoked',
      code: 'key_revoked',
      run: async (lab) => {
        lab.signed('directives/job.md', directive('job', { permissions: '*' }));
        const older = lab.read('directives/job.md');
        lab.signed('directives/job.md', directive('job'));
        const { keyId } = lab.key();
        await lab.rye().keys.rotate();
        await lab.sign('directive', 'job');
        await lab.rye().keys.revoke(keyId);
        await lab.rye().threads.plan({ directiveId: 'job' });
        lab.write('directives/job.md', older);
        return lab.rye().threads.plan({ directiveId: 'job' });
      },
    },
    {
      name: 'offers a private key to trust',
      code: 'invalid_input',
      run: (lab) => lab.rye().keys.trust(generateKeyPair().privatePem),
    },
    {
      name: 'names a key to revoke by a path',
      code: 'invalid_input',
      run: (lab) => lab.rye().keys.revoke('../../../etc/passwd'),
    },
    {
      name: 'revokes an unknown key',
      code: 'key_not_found',
      run: (lab) => lab.rye().keys.revoke('0'.repeat(16)),
    },
  ]);
});

describe('key management keeps its promises', () => {
  harmless([
    {
      name: 'rotates: what the old key signed is still accepted',
      expected: 'verified',
      run: async (lab) => {
        lab.signed('directives/job.md', directive('job'));
        await lab.rye().keys.rotate();
        return (await plan(lab)).integrity;
      },
    },
    {
      name: 'rotates twice: the chain holds',
      expected: 'verified',
      run: async (lab) => {
        lab.signed('directives/job.md', directive('job'));
        await lab.rye().keys.rotate();
        await lab.rye().keys.rotate();
        return (await plan(lab)).integrity;
      },
    },
    {
      name: 'creates keys with private modes under a permissive umask',
      expected: ['700', '600'],
      run: async (lab) => {
        const before = process.umask(0);
        try {
          removeFolder(lab.path(`${KEYS}/signing`));
          await lab.rye().keys.init();
        } finally {
          process.umask(before);
        }
        return [`${KEYS}/signing`, PRIVATE].map((path) =>
          (statSync(lab.path(path)).mode & 0o777).toString(8),
        );
      },
    },
    {
      name: 'confirms a key that the project brings for this project only',
      expected: 'verified',
      run: async (lab) => {
        lab.write(`config/keys/trusted/${lab.stranger.keyId}.toml`, strangersFile(lab));
        jobByStranger(lab);
        await lab.rye().keys.trust(strangersFile(lab));
        return (await plan(lab)).integrity;
      },
    },
    {
      name: 'exports no private key',
      expected: false,
      run: async (lab) => (await lab.rye().keys.export()).pem.includes('PRIVATE'),
    },
    {
      name: 'lets a project tighten the policy without a signature',
      expected: 'unsigned',
      run: async (lab) => {
        lab.write('config/trust.yaml', 'fetch: required\n');
        lab.write('knowledge/note.md', '---\ntitle: A note\n---\nText.\n');
        return await lab
          .rye()
          .items.fetch('knowledge', 'note')
          .catch((error: { code: string }) => error.code);
      },
    },
  ]);
});
