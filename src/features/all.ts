// One line a feature. Without its line and its folder rye compiles, starts and runs.
export { approvals } from './approvals/index.ts';
export { chat } from './chat/index.ts';
export { fleet } from './fleet/index.ts';
export { html } from './html/index.ts';
export { mcp } from './mcp/index.ts';
export { pi } from './pi/index.ts';
export { rules } from './rules/index.ts';
export { ryeOs } from './rye-os/index.ts';
export { schedules } from './schedules/index.ts';
export { search } from './search/index.ts';
export { sessions } from './sessions/index.ts';
export { skills } from './skills/index.ts';
export { worktrees } from './worktrees/index.ts';
