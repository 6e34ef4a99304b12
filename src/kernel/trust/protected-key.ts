import { createCipheriv, createPrivateKey, randomBytes, scryptSync } from 'node:crypto';
import { RyeError } from '../core/errors.ts';

const LABEL = 'ENCRYPTED PRIVATE KEY';
/** The most that OpenSSL opens without a setting, 16 MiB, four times for each guess. */
const COST = { N: 16_384, r: 8, p: 4 } as const;
const MAX_MEMORY = 32 * 1024 * 1024;
const KEY_LENGTH = 32;

// https://www.rfc-editor.org/rfc/rfc8018#appendix-A.4, https://www.rfc-editor.org/rfc/rfc7914#section-7
const PBES2 = '06092a864886f70d01050d';
const SCRYPT = '06092b06010401da47040b';
const AES_256_CBC = '060960864801650304012a';

/** True for a private key that only a passphrase opens. */
export function isProtected(pem: string): boolean {
  return pem.includes(`-----BEGIN ${LABEL}-----`);
}

/** Returns a PKCS #8 PEM encrypted with a passphrase: scrypt and AES-256, as OpenSSL reads it. */
export function protectKey(pem: string, passphrase: string): string {
  const der = createPrivateKey(pem).export({ type: 'pkcs8', format: 'der' });
  const salt = randomBytes(16);
  const iv = randomBytes(16);
  const key = scryptSync(passphrase, salt, KEY_LENGTH, { ...COST, maxmem: MAX_MEMORY });
  const cipher = createCipheriv('aes-256-cbc', key, iv);
  const sealed = Buffer.concat([cipher.update(der), cipher.final()]);
  const kdf = sequence(
    hex(SCRYPT),
    sequence(octets(salt), integer(COST.N), integer(COST.r), integer(COST.p), integer(KEY_LENGTH)),
  );
  const scheme = sequence(hex(AES_256_CBC), octets(iv));
  const body = sequence(sequence(hex(PBES2), sequence(kdf, scheme)), octets(sealed));
  const lines = body.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${LABEL}-----\n${lines.join('\n')}\n-----END ${LABEL}-----\n`;
}

/** Opens what {@link protectKey} or OpenSSL made; throws `key_unsafe` for another passphrase. */
export function openProtected(pem: string, passphrase: string): string {
  try {
    const key = createPrivateKey({ key: pem, passphrase });
    return key.export({ type: 'pkcs8', format: 'pem' }).toString();
  } catch {
    // the reason of OpenSSL names no cause that helps
    throw new RyeError('key_unsafe', 'the passphrase does not open the signing key', {
      hint: 'Try again. Without the passphrase the key is lost: rye keys rotate needs it too.',
    });
  }
}

function hex(text: string): Buffer {
  return Buffer.from(text, 'hex');
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return tagged(0x30, Buffer.concat(parts));
}

function octets(bytes: Buffer): Buffer {
  return tagged(0x04, bytes);
}

/** A positive integer: a leading zero keeps it positive. */
function integer(value: number): Buffer {
  const digits = value.toString(16);
  const bytes = hex(digits.length % 2 === 0 ? digits : `0${digits}`);
  return tagged(0x02, (bytes[0] ?? 0) < 0x80 ? bytes : Buffer.concat([Buffer.from([0]), bytes]));
}

/** Nothing here reaches 64 KiB. */
function tagged(tag: number, content: Buffer): Buffer {
  const { length } = content;
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}
