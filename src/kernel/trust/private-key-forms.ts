const BLOCK = /-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[^-]*-----END [A-Z0-9 ]*PRIVATE KEY-----/g;
/** Shorter texts would match by chance. */
const MIN_LENGTH = 16;
const SEED_BYTES = 32;
/** Columns at which common programs break what they encode: `base64`, `openssl`, `xxd -p`. */
const COLUMNS = [64, 76, 60];

/** Returns the forms in which a program may print the private keys of a PEM text. Line feeds may be written as `\n`. */
export function privateKeyForms(text: string): readonly string[] {
  const blocks = text.replaceAll(String.raw`\n`, '\n').replaceAll('\r', '').match(BLOCK) ?? [];
  const forms = blocks.flatMap((block) => [
    ...linesOf(block),
    ...encodedText(block),
    ...encodedKey(block),
  ]);
  return [...new Set(forms)].filter((form) => form.length >= MIN_LENGTH);
}

function linesOf(block: string): readonly string[] {
  return block.split('\n').filter((line) => line !== '' && !/[-:]/.test(line));
}

/** The file as a whole, encoded once more; with and without its last line feed. */
function encodedText(block: string): readonly string[] {
  return [block, `${block}\n`].flatMap((text) => {
    const bytes = Buffer.from(text, 'latin1');
    return [bytes.toString('base64'), bytes.toString('hex')].flatMap((encoded) => [
      encoded,
      ...COLUMNS.flatMap(
        (columns) => encoded.match(new RegExp(`.{${MIN_LENGTH},${columns}}`, 'g')) ?? [],
      ),
    ]);
  });
}

function encodedKey(block: string): readonly string[] {
  const der = Buffer.from(linesOf(block).join(''), 'base64');
  return [der, der.subarray(-SEED_BYTES)].flatMap((bytes) => {
    const base64 = bytes.toString('base64');
    const hex = bytes.toString('hex');
    // what follows changes only the last character: a key pair begins with its seed
    const begun = base64.replace(/=+$/, '').slice(0, -1);
    return [
      base64,
      begun,
      bytes.toString('base64url'),
      begun.replaceAll('+', '-').replaceAll('/', '_'),
      hex,
      hex.toUpperCase(),
    ];
  });
}
