// The entry `cinnabar-group/variables`: a value that each member of a group has a copy of.
export {
  type GetOptions,
  implementVariables,
  type SetOptions,
  type Variable,
  type VariableCallOptions,
  type VariableImplementation,
  type VariableOptions,
  VersionConflictError,
  type Versioned,
} from "./variable/variables.ts";
