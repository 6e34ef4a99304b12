import type { ChatModel } from '../../../kernel/app/api/chat.ts';
import type { Choice, PickerFace } from '../picker.ts';
import { type Colors, displayWidth, truncate } from '../terminal-text.ts';
import { oneLine } from '../visible.ts';

/** A model that the conversation can use, in a picker. */
export interface ModelChoice extends Choice, ChatModel {}

export function modelChoices(models: readonly ChatModel[]): readonly ModelChoice[] {
  return models.map((one) => ({
    ...one,
    searched: [one.provider, one.model, ...one.tiers].join(' '),
  }));
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
        const facts = oneLine(`${provider}  ${tiers.join(' ')}`);
        const rest = truncate(facts, Math.max(1, columns - width - 2));
        return `${isChosen(choice) ? colors.bold(cell) : cell}  ${colors.dim(rest)}`;
      });
    },
  };
}
