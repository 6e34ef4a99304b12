/** The members of a plug-in. Configuration grants each of them by name. */
export const PLUGIN_MEMBERS = [
  'commands',
  'events',
  'gates',
  'subscribers',
  'tables',
  'tools',
] as const;
