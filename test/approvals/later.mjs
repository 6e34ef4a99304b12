// Loaded into a rye process with --import: its wall clock is RYE_TEST_LATER_MS ahead.
import process from 'node:process';

const ahead = Number(process.env['RYE_TEST_LATER_MS'] ?? 0);
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...given) {
    super(...(given.length === 0 ? [RealDate.now() + ahead] : given));
  }

  static now() {
    return RealDate.now() + ahead;
  }
};
