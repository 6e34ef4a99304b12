import { expect, it, onTestFinished } from 'vitest';
import { followPage } from '../helpers/page-world.ts';
import { startPostgres } from '../helpers/postgres.ts';

it('docs/fleet.md does what it shows', { timeout: 180_000 }, async () => {
  const server = await startPostgres();
  onTestFinished(async () => await server.stop());
  const surprises = await followPage('docs/fleet.md', {
    before: ['rye init', 'openssl genpkey -algorithm ed25519 | openssl pkey -pubout > ada.pem'],
    replace: { 'postgres://rye@db.example/rye': await server.url('fleet') },
  });
  expect(surprises.join('\n')).toBe('');
});
