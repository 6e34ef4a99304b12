/** Writes the files of a tar below a folder: `node materialize-child.js TAR FOLDER`. */
import { readFileSync } from 'node:fs';
import { materialize } from '../../src/fleet/bundle/materialize-fs.ts';
import { readTar } from '../../src/fleet/bundle/tar.ts';

const [, , tar = '', folder = ''] = process.argv;
process.stdout.write('ready\n');
materialize(readTar(readFileSync(tar)), folder);
