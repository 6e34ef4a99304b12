/** SHA-256 hex of every regular file below `<spaceDir>/.ai`, by its path relative to that folder. */
export function systemManifest(spaceDir: string): Readonly<Record<string, string>>;
