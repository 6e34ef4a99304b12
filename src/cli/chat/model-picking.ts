import type { Key } from '../keyboard.ts';
import { drawPicker, openPicker, type Picker, pressPicker } from '../picker.ts';
import type { Footer } from '../render/live-view.ts';
import type { Colors } from '../terminal-text.ts';
import { type ModelChoice, modelFace } from './model-choice.ts';

/** A person's choice of a model, which has the keys until it is made. */
export class ModelPicking {
  #picker: Picker<ModelChoice>;
  #settle: (choice: ModelChoice | null) => void = () => {};
  /** The model; null: the person left. */
  readonly choice = new Promise<ModelChoice | null>((resolve) => {
    this.#settle = resolve;
  });

  constructor(choices: readonly ModelChoice[], at: number) {
    this.#picker = openPicker(choices, at);
  }

  /** Takes a key. Returns one that came right after the Escape that left the picker. */
  press(key: Key): Key | undefined {
    const { picker, picked } = pressPicker(this.#picker, key);
    this.#picker = picker;
    if (picked === undefined) return undefined;
    this.#settle(picked);
    const name = key.name.replace(/^alt\+/, '');
    return name !== key.name && name.length === 1 ? { name, text: name } : undefined;
  }

  leave(): void {
    this.#settle(null);
  }

  draw(style: {
    readonly colors: Colors;
    readonly columns: number;
    readonly rows: number;
  }): Footer {
    return drawPicker(this.#picker, modelFace(style.colors), style);
  }
}
