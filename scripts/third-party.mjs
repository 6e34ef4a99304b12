// Collects the licenses of the packages whose code is in dist/.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const PACKAGE = /^.*node_modules[\\/](?:@[^\\/]+[\\/])?[^\\/]+(?=[\\/])/;
const LICENSE_FILE = /^(?:licen[cs]e|copying|notice)(?:[.-].*)?$/i;

/** Returns the notices for the packages that the bundled files belong to, sorted by name. */
export function thirdPartyNotices(root, files) {
  const folders = new Set(files.map(relativePath).flatMap((file) => PACKAGE.exec(file)?.[0] ?? []));
  return [...folders]
    .map((folder) => notice(path.join(root, folder)))
    .toSorted()
    .join('\n');
}

/** Removes the root and the `namespace:` that esbuild writes before some paths. */
function relativePath(file) {
  const at = file.indexOf('node_modules');
  return at < 0 ? file : file.slice(at);
}

function notice(folder) {
  const { name, version, license } = JSON.parse(
    readFileSync(path.join(folder, 'package.json'), 'utf8'),
  );
  const texts = readdirSync(folder)
    .filter((file) => LICENSE_FILE.test(file) && !/\.[cm]?[jt]s$/.test(file))
    .map((file) => readFileSync(path.join(folder, file), 'utf8').trim());
  if (license === undefined && texts.length === 0) throw new Error(`${name} names no license`);
  return [`## ${name} ${version}: ${license ?? 'see below'}`, '', ...texts, ''].join('\n');
}
