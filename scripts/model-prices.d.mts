/** Returns the text of `src/kernel/providers/prices.json`, made from the installed package of prices. */
export function modelPrices(): string;
