// A chat template as data: Jinja as Hugging Face's library sets it up for chats, the part of it that chat templates
// use.
//
// Statements: for (with if and else; break, continue), if, set (also of a block, and of a namespace's field), macro,
// generation. Expressions: literals, arithmetic, comparisons, conditions, subscripts and slices, calls, filters, tests.
// docs/generation.md lists filters, tests and methods. Everything else is refused by its name, when the template is
// read. White space is that of trim_blocks and lstrip_blocks, and of '-' and '+' in tags.
//
// A template comes from outside: it is at most kMostTemplateBytes, and nested at most kDeepestTemplate deep.
//
// Failure: UserError (bad_input_file) naming the template and the line.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/template_value.h"

namespace lockstep {

inline constexpr std::size_t kMostTemplateBytes = 1 << 20;
inline constexpr int kDeepestTemplate = 200;    // tags and brackets within each other
inline constexpr int kDeepestExpression = 500;  // operations on the results of others

struct TemplateExpression {
  enum class Kind {
    constant,
    name,       // text
    list,       // parts
    entries,    // parts: key, value, key, value, …
    negative,   // -a
    positive,   // +a
    opposite,   // not a
    binary,     // text: the operator; a, b
    both,       // a and b
    either,     // a or b
    condition,  // a if b else c; without c, undefined
    attribute,  // a.text
    subscript,  // a[b]
    slice,      // a[b:c:d]; a part that is not there is undefined
    call,       // a(parts[1], …)
    filter,     // parts[0] | text(parts[1], …)
    test,       // parts[0] is text(parts[1], …)
  };
  Kind kind = Kind::constant;
  int line = 0;
  int depth = 1;  // of the tree below
  std::string text = {};
  TemplateValue constant = {};
  std::vector<TemplateExpression> parts = {};
  std::vector<std::pair<std::string, TemplateExpression>> named = {};  // arguments by name
};

struct TemplateStatement {
  enum class Kind { text, print, loop, branch, set, set_block, macro, leave, next, generation };
  Kind kind = Kind::text;
  int line = 0;
  std::string text = {};                    // of text; the name that set and macro give; before a '.', a namespace
  std::string field = {};                   // of a namespace, that set gives
  std::vector<std::string> names = {};      // of a loop: what each element is unpacked into; of a macro: its arguments
  std::vector<TemplateExpression> of = {};  // print, set: the value; loop: what over, and perhaps if; branch:
                                            // conditions; macro: the defaults of its last arguments
  std::vector<std::vector<TemplateStatement>> bodies =
      {};  // branch: one per condition, and perhaps else; loop: perhaps else
};

struct TemplateMacro {
  const TemplateStatement* statement;
};

// `where` names the template in messages.
std::vector<TemplateStatement> parse_template(std::string_view source, const std::string& where);

// What there is to refuse unknown names by (template_functions.h has what they do).
bool is_template_filter(std::string_view name);
bool is_template_test(std::string_view name);

}  // namespace lockstep
