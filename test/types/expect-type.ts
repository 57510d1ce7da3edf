/** Whether two types are the same, not just assignable both ways: `any`, `readonly` and optional fields count. */
export type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

/** Compiles only for `true`: `type _ = Expect<Equal<A, B>>`. */
export type Expect<T extends true> = T;
