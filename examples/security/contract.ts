import { service, unary } from "cinnabar";
import { z } from "zod";

/** Everybody with a certificate may open the vault; only the administrator may close it. */
export const Vault = service("vault.v1", {
  open: unary({ output: z.string() }),
  close: unary({ output: z.string() }),
});
