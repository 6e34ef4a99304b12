import { type JsonObject, toText } from '../../../kernel/core/json.ts';
import type { Choice, PickerFace } from '../picker.ts';
import { type Colors, displayWidth, truncate } from '../terminal-text.ts';
import { oneLine } from '../visible.ts';

/** A model that the conversation can use. */
export interface ModelChoice extends Choice {
  readonly provider: string;
  readonly model: string;
  readonly tiers: string;
}

/** Returns the usable ones of these models, as `rye models list` has them. */
export function modelChoices(rows: readonly JsonObject[]): readonly ModelChoice[] {
  return rows
    .filter(({ usable }) => usable === true)
    .map((row) => {
      const [provider, model] = [toText(row['provider'] ?? '-'), toText(row['model'] ?? '-')];
      const tiers = Array.isArray(row['tiers']) ? row['tiers'].join(' ') : '';
      return { provider, model, tiers, searched: `${provider} ${model} ${tiers}` };
    });
}

/** Returns the position of the model in use, by its ID or one of its tiers; -1 if it is none of them. */
export function currentAt(choices: readonly ModelChoice[], model: string | undefined): number {
  const at = choices.findIndex((one) => one.model === model);
  return at === -1 && model !== undefined
    ? choices.findIndex(({ tiers }) => tiers.split(' ').includes(model))
    : at;
}

/** Formats the rows of the picker: model, provider and tiers. */
export function modelFace(colors: Colors): PickerFace<ModelChoice> {
  return {
    noun: 'model',
    rows: (page, { columns, isChosen }) => {
      const width = Math.max(0, ...page.map(({ model }) => displayWidth(oneLine(model))));
      return page.map((choice) => {
        const { model, provider, tiers } = choice;
        const cell = oneLine(model).padEnd(width);
        const rest = truncate(oneLine(`${provider}  ${tiers}`), Math.max(1, columns - width - 2));
        return `${isChosen(choice) ? colors.bold(cell) : cell}  ${colors.dim(rest)}`;
      });
    },
  };
}
