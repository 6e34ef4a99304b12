/** Writes the files of a tar below a folder: `node materialize-child.js TAR FOLDER`. */
import { readFileSync } from 'node:fs';
import { materialize } from '../../src/features/fleet/bundle/materialize-fs.ts';
import { readTar } from '../../src/features/fleet/bundle/tar.ts';

const [, , tar = '', folder = ''] = process.argv;
process.stdout.write('ready\n');
materialize(readTar(readFileSync(tar)), folder);
