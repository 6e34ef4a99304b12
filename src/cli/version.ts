declare const __RYE_VERSION__: string;

/** Version of the package; the build bakes it in. */
export const VERSION = __RYE_VERSION__;
