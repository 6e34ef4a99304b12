export {
  convertDirective,
  DIRECTIVE_NOTATIONS,
} from '../items/directive-convert.ts';
