// Certificates, made by `cinnabar keys init` and `cinnabar keys issue NAME --dns shop`, in one folder.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { EngineOptions } from "cinnabar";

/** What every certificate of the shop proves. */
export const shopName = "shop";

/** The options of an engine with the certificate `name`; none without a folder, for tests and a first look. */
export function secured(folder: string | undefined, name: string): Pick<EngineOptions, "security"> {
  if (folder === undefined) return {};
  const file = (each: string) => () => readFileSync(join(folder, each));
  return { security: { tls: { cert: file(`${name}.pem`), key: file(`${name}.key`), ca: file("ca.pem") } } };
}
