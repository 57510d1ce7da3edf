// A module that gives no services.
export const somethingElse = 1;
