/** Thrown for a request that a server did not run because it forgot the session, as after its restart. */
export class ForgottenSession extends Error {
  override readonly name = 'ForgottenSession';
}
