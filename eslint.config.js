// Checks of the JavaScript (make lint): ESLint's recommended rules, and rules on mistakes that they leave out.

import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: [".venv/", "build/", "experiments/"] },
  js.configs.recommended,
  {
    files: ["nppsim/**/*.js"],
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "array-callback-return": "error",
      eqeqeq: "error",
      "max-len": ["error", 120],
      "no-self-compare": "error",
      "no-shadow": "error",
      "no-template-curly-in-string": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "no-use-before-define": ["error", { functions: false, classes: false, variables: false }],
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      "require-await": "error",
    },
  },
  { files: ["nppsim/studio/static/worker.js"], languageOptions: { globals: globals.serviceworker } },
  { files: ["tests/**/*.mjs", "eslint.config.js"], languageOptions: { globals: globals.node } },
];
