import { assertOutsideTools } from './ancestry.ts';
import { Items } from './items.ts';
import type { Workspace } from './workspace.ts';

/** The items of a project for people and programs. What a thread may sign goes through its tool `rye/sign` and its gates. */
export class PersonalItems extends Items {
  readonly #env: Workspace['options']['env'];

  constructor(...parts: ConstructorParameters<typeof Items>) {
    super(...parts);
    this.#env = parts[0].options.env;
  }

  override async sign(...request: Parameters<Items['sign']>): ReturnType<Items['sign']> {
    assertOutsideTools(this.#env, 'sign');
    return await super.sign(...request);
  }
}
