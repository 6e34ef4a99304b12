import type { Foundation } from './foundation.ts';
import type { RuleListing, RuleSample, RuleScan, RulesService } from './rules-api.ts';

/** Loads what checks rules only when it is asked for. */
export class LazyRules implements RulesService {
  readonly #base: Foundation;

  constructor(base: Foundation) {
    this.#base = base;
  }

  async list(options: Parameters<RulesService['list']>[0] = {}): Promise<RuleListing> {
    return await (await this.#bench()).list(options);
  }

  async test(sample: RuleSample): ReturnType<RulesService['test']> {
    return await (await this.#bench()).test(sample);
  }

  async scan(options: Parameters<RulesService['scan']>[0]): Promise<RuleScan> {
    return await (await this.#bench()).scan(options);
  }

  async #bench(): Promise<RulesService> {
    const { RuleBench } = await import('./rules-service.ts');
    return new RuleBench(this.#base);
  }
}
