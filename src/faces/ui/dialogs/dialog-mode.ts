import type { Editor } from '../chat/editor.ts';
import type { Form } from './question-form.ts';

/** State of the dialog: it decides about the meaning of the next key. */
export type Mode =
  /** One key decides. */
  | { readonly kind: 'keys' }
  /** The whole request is read, from line `top`. */
  | { readonly kind: 'pages'; readonly top: number }
  /** The reason of a denial, or the input that runs instead, is typed. */
  | { readonly kind: 'reason' | 'input'; readonly editor: Editor }
  | { readonly kind: 'form'; readonly form: Form }
  /** Each edit of a call is kept or omitted; `at` is the place of the chosen one, from 0. */
  | { readonly kind: 'hunks'; readonly at: number; readonly kept: readonly boolean[] }
  /** A decision is being signed, or an editor is open: keys do nothing. */
  | { readonly kind: 'busy' };
