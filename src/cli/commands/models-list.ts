import { EXIT, type ExitCode } from '../../core/errors.ts';
import { isRecord, type JsonObject, toText } from '../../core/json.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { formatTable, printDocument } from '../output.ts';
import { withRye } from '../session.ts';

const HEADINGS = ['PROVIDER', 'MODEL', 'TIERS', 'WINDOW', 'USD PER MILLION IN/OUT', 'READY'];
const MAIN_TIERS: ReadonlySet<unknown> = new Set(['fast', 'general', 'high', 'max']);

/** `rye models list`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const models = await withRye(invocation, io, (rye) => rye.models());
  if (invocation.global.json) {
    printDocument(io, { success: true, models, total: models.length });
    return EXIT.ok;
  }
  io.stdout.write(formatTable(HEADINGS, models.map(rowOf), io.stdout));
  const dates = [...new Set(models.map(({ prices_as_of: date }) => date))];
  const known = dates.filter((date) => typeof date === 'string').toSorted();
  if (known.length > 0) io.stdout.write(`\nPrices as of ${known.join(', ')}.\n`);
  return EXIT.ok;
}

function rowOf(model: JsonObject): string[] {
  const { tiers, context_window: window, pricing } = model;
  const main = Array.isArray(tiers) ? tiers.filter((tier) => MAIN_TIERS.has(tier)) : [];
  const provider = textOf(model, 'provider');
  return [
    model['default_provider'] === true ? `${provider} (default)` : provider,
    textOf(model, 'model'),
    main.length === 0 ? '-' : main.join(' '),
    tokens(window),
    isRecord(pricing) ? `${usd(pricing['input'])} / ${usd(pricing['output'])}` : 'unknown',
    readiness(model),
  ];
}

/** What is missing, where something is: a server without a key must be named or given an address. */
function readiness(model: JsonObject): string {
  if (model['usable'] === true) return 'yes';
  const variable = model['key_variable'];
  return typeof variable === 'string'
    ? `set ${variable}`
    : `--provider ${textOf(model, 'provider')}`;
}

function textOf(model: JsonObject, member: string): string {
  return toText(model[member] ?? '-');
}

function tokens(count: unknown): string {
  if (typeof count !== 'number') return '-';
  return count >= 1_000_000 ? `${count / 1_000_000}M` : `${Math.round(count / 1000)}k`;
}

function usd(price: unknown): string {
  return typeof price === 'number' ? price.toFixed(2) : '?';
}
