import type { Foundation } from './foundation.ts';
import type { KeyOffer, KeySummary, KeysService } from './rye.ts';

/** Keys of the user and of the project. */
export class Keys implements KeysService {
  readonly #base: Foundation;

  constructor(base: Foundation) {
    this.#base = base;
  }

  async init(): Promise<KeySummary> {
    return await this.#base.keyring.init();
  }

  async list(): Promise<readonly KeySummary[]> {
    return this.#base.keyring.list();
  }

  async export(): Promise<{ readonly key_id: string; readonly pem: string }> {
    return this.#base.keyring.export();
  }

  async inspect(text: string, options: { owner?: string } = {}): Promise<KeyOffer> {
    return this.#base.keyring.inspect(text, options);
  }

  async trust(text: string, options: { owner?: string } = {}): Promise<KeySummary> {
    return await this.#base.keyring.trust(text, options);
  }

  async revoke(keyId: string, options: { reason?: string } = {}): Promise<KeySummary> {
    return await this.#base.keyring.revoke(keyId, options);
  }

  async rotate(): Promise<{ readonly old_key_id: string; readonly key_id: string }> {
    return await this.#base.keyring.rotate();
  }
}
