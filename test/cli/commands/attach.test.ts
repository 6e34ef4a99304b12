import { expect, onTestFinished, test } from 'vitest';
import { runCli } from '../../helpers/run-cli.ts';
import { reply, startWireServer, text, type WireTurn } from '../../helpers/wire-server.ts';
import { signedFile } from '../../helpers/signed-files.ts';
import { workspace } from '../../helpers/workspace.ts';
