export { convertDirective } from '../items/directive-convert.ts';
