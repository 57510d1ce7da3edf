/**
 * Whether tests run in their long form: `CINNABAR_LONG=1`, as in `npm test -- all`. The long form looks for races with
 * many more tries, goes over every provider, and moves the largest bodies; the short form, that of `npm test`, takes
 * every way through the code once.
 */
export const isLong: boolean = process.env.CINNABAR_LONG === "1";
