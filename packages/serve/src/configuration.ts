import { validate } from "cinnabar/options";
import { type Application, ApplicationError, type Component } from "./component.ts";

/** Where values of a configuration come from; the later ones win. */
export interface Sources {
  /** The parsed content of a configuration file: fields by component. */
  readonly file?: unknown;
  /** Environment variables: `SHOP_ORDERS_LISTEN` for the field `listen` of `orders` in the application `shop`. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Flags: `orders.listen` and its value. */
  readonly flags?: readonly (readonly [name: string, value: string])[] | undefined;
}

/** The origin of a value. */
export type Origin = "default" | "file" | "environment" | "flag";

/** A field of the effective configuration. */
export interface Setting {
  /** `orders.listen`. */
  readonly path: string;
  /** As it is shown: JSON without secrets. */
  readonly shown: string;
  readonly origin: Origin;
}

/** The configuration of all components. */
export interface Configuration {
  readonly values: ReadonlyMap<string, unknown>;
  readonly settings: readonly Setting[];
  /** A text without the values of secrets. */
  hide(text: string): string;
}

interface Given {
  readonly value: unknown;
  readonly origin: Origin;
  /** Environment variables and flags are text, whatever the schema wants. */
  readonly isText: boolean;
}

/** Names of fields that hold secrets, whether the component says so or not. */
const secretName = /pass(word|wd|phrase)|secret|token|psk|credential|private_?key|api_?key/i;

/**
 * The configuration of the components in `order`.
 *
 * @throws ApplicationError with a line for each value that is missing, unknown or wrong, with its origin.
 */
export async function configure(
  application: Application,
  order: readonly string[],
  sources: Sources,
): Promise<Configuration> {
  const given = gather(application, sources);
  const values = new Map<string, unknown>();
  const settings: Setting[] = [];
  const faults: string[] = [...given.faults];
  const secrets: string[] = [];
  // The longest first: a part of it may be another one.
  const hide = (text: string) =>
    secrets
      .toSorted((a, b) => b.length - a.length)
      .reduce((all, secret) => all.replaceAll(secret, "(secret)"), text);
  const keep = (part: Component, field: string, value: unknown) =>
    secrets.push(...secretsIn(value, isSecret(part, field)));
  for (const name of order) {
    const part = application.components[name] as Component;
    const fields = given.fields.get(name) ?? new Map<string, Given>();
    for (const [field, { value, isText }] of fields) {
      keep(part, field, value);
      if (isText) keep(part, field, parsedOf(value as string)?.value);
    }
    const { value, issues } = await checked(part, fields);
    for (const { path, message } of issues) {
      const field = path ?? "";
      const from = fields.get(field);
      const what = isSecret(part, field) ? "it does not fit its schema" : message;
      faults.push(
        `${field === "" ? name : `${name}.${field}`}: ${what}${from === undefined ? "" : ` (from ${nameOf(from.origin)})`}`,
      );
    }
    if (issues.length > 0) continue;
    values.set(name, value);
    if (typeof value !== "object" || value === null) continue;
    for (const [field, { origin }] of fields)
      if (!has(value, field))
        faults.push(`${name}.${field}: there is no such field (from ${nameOf(origin)})`);
    for (const [field, one] of Object.entries(value)) {
      keep(part, field, one);
      settings.push({
        path: `${name}.${field}`,
        shown: isSecret(part, field) ? "(secret)" : shownValue(one),
        origin: fields.get(field)?.origin ?? "default",
      });
    }
  }
  if (faults.length > 0) {
    for (const name of order) {
      const fields = given.fields.get(name) ?? new Map<string, Given>();
      if (
        fields.get("serviceHost")?.origin === "environment" &&
        !has(values.get(name), "serviceHost") &&
        [...fields].some(isOfKubernetes)
      )
        faults.push(
          `${name}: Kubernetes sets such variables for a Service of this name; set enableServiceLinks: false in the pod`,
        );
    }
    throw new ApplicationError(
      [`${application.name}: the configuration is wrong:`, ...faults.map((each) => `  ${hide(each)}`)].join(
        "\n",
      ),
    );
  }
  return { values, settings, hide };
}

/** The configuration in lines, each with the origin of its value. */
export function linesOf({ settings }: Configuration): string[] {
  const width = Math.max(0, ...settings.map(({ path, shown }) => path.length + shown.length + 3));
  return settings.map(
    ({ path, shown, origin }) => `${`${path} = ${shown}`.padEnd(width)}  # ${nameOf(origin)}`,
  );
}

const has = (value: unknown, field: string) =>
  typeof value === "object" && value !== null && Object.hasOwn(value, field);

/** Whether it is a variable that Kubernetes sets beside `…_SERVICE_HOST`. */
const isOfKubernetes = ([field, { value, origin }]: [string, Given]) =>
  origin === "environment" &&
  (/^servicePort/.test(field) || (/^port/.test(field) && /^(tcp|udp|sctp):\/\//.test(String(value))));

const nameOf = (origin: Origin) => (origin === "file" ? "the file" : origin === "flag" ? "a flag" : origin);

function isSecret({ secrets = [] }: Component, field: string): boolean {
  return secrets.includes(field) || secretName.test(field);
}

/** The password of a URL, which may have any character but white space in it. */
const urlPassword = /(\w:\/\/[^/:@\s]*:)(\S+)@/g;

/** The texts of a value that are secrets, as `shownValue` hides them. */
function secretsIn(value: unknown, isHidden: boolean): string[] {
  if (typeof value === "object" && value !== null)
    return Object.entries(value).flatMap(([key, inner]) =>
      secretsIn(inner, isHidden || (!Array.isArray(value) && secretName.test(key))),
    );
  if (isHidden) {
    const text = typeof value === "string" || typeof value === "number" ? String(value) : "";
    return text === "" ? [] : [text];
  }
  if (typeof value !== "string") return [];
  return [...value.matchAll(urlPassword)].flatMap(([, , password = ""]) => [password, decoded(password)]);
}

/** Errors of a client may show a password without its escapes. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** JSON, with what secrets are in it hidden: fields by their names, and passwords of URLs. */
function shownValue(value: unknown): string {
  const text = JSON.stringify(value, (key, inner: unknown) => {
    if (key !== "" && secretName.test(key)) return "(secret)";
    if (typeof inner === "bigint") return String(inner);
    return typeof inner === "string" ? inner.replace(urlPassword, "$1(secret)@") : inner;
  });
  return text ?? String(value);
}

/** Fields by component, each from the last source that has it. */
function gather({ name: app, components }: Application, { file, env = {}, flags = [] }: Sources) {
  const fields = new Map<string, Map<string, Given>>();
  const faults: string[] = [];
  const names = Object.keys(components);
  const put = (component: string, field: string, value: Given): void => {
    const table = fields.get(component) ?? new Map<string, Given>();
    fields.set(component, table);
    table.set(field, value);
  };
  const known = (component: string, where: string): boolean => {
    if (names.includes(component)) return true;
    faults.push(`${component}: there is no such component (from ${where}); there are ${names.join(", ")}`);
    return false;
  };
  for (const [component, own] of entriesOf(file, "the file", faults))
    if (known(component, "the file"))
      for (const [field, value] of entriesOf(own, `${component} in the file`, faults))
        put(component, field, { value, origin: "file", isText: false });
  // The longest name first: the variables of `orderBook` are not those of `order`.
  const prefixes = names
    .map((component) => ({ component, prefix: `${upper(app)}_${upper(component)}_` }))
    .sort((a, b) => b.prefix.length - a.prefix.length);
  for (const [variable, value] of Object.entries(env)) {
    const owner = prefixes.find(({ prefix }) => variable.startsWith(prefix));
    if (owner !== undefined && value !== undefined)
      put(owner.component, lowerCamel(variable.slice(owner.prefix.length)), {
        ...{ value, origin: "environment", isText: true },
      });
  }
  for (const [flag, value] of flags) {
    const [component = "", field = "", ...more] = flag.split(".");
    if (field === "" || more.length > 0) faults.push(`--${flag}: a flag has the form --component.field`);
    else if (known(component, "a flag")) put(component, field, { value, origin: "flag", isText: true });
  }
  return { fields, faults };
}

function entriesOf(value: unknown, where: string, faults: string[]): [string, unknown][] {
  if (value === undefined) return [];
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return Object.entries(value);
  faults.push(`${where} is no object`);
  return [];
}

const upper = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
const lowerCamel = (name: string) =>
  name.toLowerCase().replace(/_+([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());

/** What `checked` finds wrong, by field. */
interface Fault {
  readonly path: string | undefined;
  readonly message: string;
}

/** Checks the fields of a component. A text that its schema refuses is tried as JSON: `8080`, `true`, `["a"]`. */
async function checked(
  { config }: Component,
  fields: ReadonlyMap<string, Given>,
): Promise<{ value: unknown; issues: Fault[] }> {
  const input: Record<string, unknown> = Object.create(null);
  for (const [field, { value }] of fields) input[field] = value;
  if (config === undefined) return { value: {}, issues: [] };
  const attempt = () => validate(config, { ...input });
  let verdict = await attempt();
  let isChanged = false;
  for (const issue of verdict.issues ?? []) {
    const field = fieldOf(issue.path);
    const from = field === undefined ? undefined : fields.get(field);
    const parsed = from?.isText === true ? parsedOf(from.value as string) : undefined;
    if (field === undefined || parsed === undefined) continue;
    input[field] = parsed.value;
    isChanged = true;
  }
  if (isChanged) verdict = await attempt();
  if (verdict.issues === undefined) return { value: verdict.value, issues: [] };
  return {
    value: undefined,
    issues: verdict.issues.map(({ path, message }) => ({ path: fieldOf(path), message })),
  };
}

function fieldOf(
  path: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined,
): string | undefined {
  const first = path?.[0];
  if (first === undefined) return undefined;
  return String(typeof first === "object" ? first.key : first);
}

function parsedOf(text: string): { value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return undefined;
  }
}
