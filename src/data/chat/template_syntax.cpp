#include "data/chat/template_syntax.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "base/error.h"
#include "data/chat/template_reader.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

constexpr const char* kWithoutIt = "write the template without it";

using Kind = TemplateToken::Kind;
using Expression = TemplateExpression;
using Statement = TemplateStatement;
using Body = std::vector<Statement>;

class Parser : private TemplateReader {
 public:
  using TemplateReader::TemplateReader;

  Body run() {
    Body body = statements({});
    if (here().kind != Kind::end) fail(fmt::format("{} ends nothing", quote_text(here().text)));
    return body;
  }

 private:
  struct Deeper {
    explicit Deeper(Parser& parser) : depth(parser.depth_) {
      if (++depth > kDeepestTemplate) parser.fail(fmt::format("it is nested deeper than {}", kDeepestTemplate));
    }
    ~Deeper() { --depth; }
    int& depth;
  };

  // --- statements

  // Until a tag whose name is one of `ends`, which is left at its name, or the end of the template.
  Body statements(std::initializer_list<std::string_view> ends) {
    const Deeper deeper(*this);
    Body body;
    for (;;) {
      const TemplateToken& token = here();
      if (token.kind == Kind::end) {
        if (ends.size() > 0) fail(fmt::format("the template ends before '{{% {} %}}'", *(ends.end() - 1)));
        return body;
      }
      if (token.kind == Kind::text) {
        body.push_back({.kind = Statement::Kind::text, .line = token.line, .text = token.text});
        take();
      } else if (token.kind == Kind::print_begin) {
        take();
        Statement print{.kind = Statement::Kind::print, .line = here().line};
        print.of.push_back(listed());
        if (here().kind != Kind::print_end) fail(fmt::format("expected '}}}}', not {}", seen()));
        take();
        body.push_back(std::move(print));
      } else {
        take();  // the tag's beginning
        for (const std::string_view end : ends)
          if (word(end)) return body;
        body.push_back(tag());
      }
    }
  }

  Statement tag() {
    const int line = here().line;
    if (here().kind != Kind::name) fail(fmt::format("a tag that begins with {}", seen()));
    const std::string name = here().text;
    Statement statement{.line = line};
    if (name == "if") {
      branch(statement);
    } else if (name == "for") {
      loop(statement);
    } else if (name == "set") {
      set(statement);
    } else if (name == "macro") {
      macro(statement);
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) fail(fmt::format("'{}' outside of a loop", name));
      take();
      statement.kind = name == "break" ? Statement::Kind::leave : Statement::Kind::next;
      end_tag();
    } else if (name == "generation") {
      take();
      end_tag();
      statement.kind = Statement::Kind::generation;
      statement.bodies.push_back(statements({"endgeneration"}));
      end(statement);
    } else if (name.starts_with("end") || name.starts_with("el")) {
      fail(fmt::format("'{}' ends nothing", name));
    } else {
      fail(fmt::format("the statement {} is not supported", quote_text(name)), kWithoutIt);
    }
    return statement;
  }
  void end(const Statement&) {
    take();
    end_tag();
  }

  void branch(Statement& statement) {
    statement.kind = Statement::Kind::branch;
    do {
      take();  // if, elif
      statement.of.push_back(listed());
      end_tag();
      statement.bodies.push_back(statements({"elif", "else", "endif"}));
    } while (word("elif"));
    if (take_word("else")) {
      end_tag();
      statement.bodies.push_back(statements({"endif"}));
    }
    end(statement);
  }

  void loop(Statement& statement) {
    statement.kind = Statement::Kind::loop;
    take();
    const bool closed = take_sign("(");
    do statement.names.push_back(expect_name());
    while (take_sign(","));
    if (closed) expect_sign(")");
    if (!take_word("in")) fail(fmt::format("expected 'in', not {}", seen()));
    no_condition_ = true;  // `if` is the loop's
    statement.of.push_back(listed());
    no_condition_ = false;
    if (take_word("if")) statement.of.push_back(expression());
    if (word("recursive")) fail("recursive loops are not supported", kWithoutIt);
    end_tag();
    ++loops_;
    statement.bodies.push_back(statements({"else", "endfor"}));
    --loops_;
    if (take_word("else")) {
      end_tag();
      statement.bodies.push_back(statements({"endfor"}));
    }
    end(statement);
  }

  void set(Statement& statement) {
    take();
    statement.text = expect_name();
    if (take_sign(".")) statement.field = expect_name();
    if (sign(",")) fail("setting several names at once is not supported", "set one after the other");
    if (take_sign("=")) {
      statement.kind = Statement::Kind::set;
      statement.of.push_back(listed());
      return end_tag();
    }
    if (sign("|")) fail("a filter of a set block is not supported", kWithoutIt);
    statement.kind = Statement::Kind::set_block;
    end_tag();
    statement.bodies.push_back(statements({"endset"}));
    end(statement);
  }

  void macro(Statement& statement) {
    statement.kind = Statement::Kind::macro;
    take();
    statement.text = expect_name();
    expect_sign("(");
    while (!sign(")")) {
      statement.names.push_back(expect_name());
      if (take_sign("="))
        statement.of.push_back(expression());
      else if (!statement.of.empty())
        fail("an argument without a default comes after one with it");
      if (!take_sign(",")) break;
    }
    expect_sign(")");
    end_tag();
    const int outside = std::exchange(loops_, 0);
    statement.bodies.push_back(statements({"endmacro"}));
    loops_ = outside;
    end(statement);
  }

  // --- expressions, from what binds least to what binds most

  // Several with commas between them are a list, as in `{% for x in 1, 2 %}`.
  Expression listed() {
    Expression first = expression();
    if (!sign(",")) return first;
    Expression list = make(Expression::Kind::list, {});
    hold(list, std::move(first));
    while (take_sign(",")) {
      if (here().kind == Kind::tag_end || here().kind == Kind::print_end) break;
      hold(list, expression());
    }
    return list;
  }

  Expression expression() {
    const Deeper deeper(*this);
    Expression a = either();
    while (!no_condition_ && take_word("if")) {
      a = make(Expression::Kind::condition, {}, std::move(a), either());
      if (take_word("else")) hold(a, expression());
    }
    return a;
  }
  // Within brackets an `if` is never a loop's.
  Expression inside() {
    const bool outside = std::exchange(no_condition_, false);
    Expression a = expression();
    no_condition_ = outside;
    return a;
  }

  Expression either() {
    Expression a = both();
    while (take_word("or")) a = make(Expression::Kind::either, {}, std::move(a), both());
    return a;
  }
  Expression both() {
    Expression a = opposite();
    while (take_word("and")) a = make(Expression::Kind::both, {}, std::move(a), opposite());
    return a;
  }
  Expression opposite() {
    const Deeper deeper(*this);
    if (word("not")) {
      take();
      return make(Expression::Kind::opposite, {}, opposite());
    }
    return comparison();
  }

  Expression comparison() {
    Expression a = sum();
    std::optional<Expression> all;  // of a < b < c: a < b and b < c
    for (;;) {
      std::string name;
      for (const std::string_view one : {"==", "!=", "<", "<=", ">", ">="})
        if (sign(one)) name = one;
      if (word("in")) name = "in";
      if (word("not") && here(1).kind == Kind::name && here(1).text == "in") name = "not in";
      if (name.empty()) return all ? std::move(*all) : std::move(a);
      take();
      if (name == "not in") take();
      Expression b = sum();
      Expression one = make(Expression::Kind::binary, name, std::move(a), b);
      all = all ? make(Expression::Kind::both, {}, std::move(*all), std::move(one)) : std::move(one);
      a = std::move(b);
    }
  }

  Expression sum() {
    return left({"+", "-"}, [this] { return joined(); });
  }
  Expression joined() {
    return left({"~"}, [this] { return product(); });
  }
  Expression product() {
    return left({"*", "/", "//", "%"}, [this] { return power(); });
  }
  Expression power() {
    return left({"**"}, [this] { return unary(true); });
  }

  template <class Operand>
  Expression left(std::initializer_list<std::string_view> signs, Operand&& operand) {
    Expression a = operand();
    for (;;) {
      const auto found = std::find_if(signs.begin(), signs.end(), [&](std::string_view s) { return sign(s); });
      if (found == signs.end()) return a;
      take();
      a = make(Expression::Kind::binary, std::string(*found), std::move(a), operand());
    }
  }

  Expression unary(bool filters) {
    const Deeper deeper(*this);
    Expression a;
    if (take_sign("-"))
      a = make(Expression::Kind::negative, {}, unary(false));
    else if (take_sign("+"))
      a = make(Expression::Kind::positive, {}, unary(false));
    else
      a = primary();
    a = places(std::move(a));
    return filters ? filtered(std::move(a)) : a;
  }

  Expression primary() {
    const TemplateToken token = take();
    Expression a{.line = token.line};
    switch (token.kind) {
      case Kind::string:
        a.text = token.text;
        while (here().kind == Kind::string) a.text += take().text;
        if (valid_utf8(a.text) != a.text.size()) fail("a string that is not UTF-8");
        a.constant = std::exchange(a.text, {});
        return a;
      case Kind::whole:
        a.constant = token.whole;
        return a;
      case Kind::real:
        a.constant = token.real;
        return a;
      case Kind::name:
        if (token.text == "true" || token.text == "True") {
          a.constant = true;
        } else if (token.text == "false" || token.text == "False") {
          a.constant = false;
        } else if (token.text == "none" || token.text == "None") {
          a.constant = TemplateValue::None{};
        } else {
          a.kind = Expression::Kind::name;
          a.text = token.text;
        }
        return a;
      default:
        break;
    }
    if (token.kind == Kind::sign && token.text == "(") return in_parentheses();
    if (token.kind == Kind::sign && token.text == "[") {
      a.kind = Expression::Kind::list;
      while (!sign("]")) {
        hold(a, inside());
        if (!take_sign(",")) break;
      }
      expect_sign("]");
      return a;
    }
    if (token.kind == Kind::sign && token.text == "{") {
      a.kind = Expression::Kind::entries;
      while (!sign("}")) {
        hold(a, inside());
        expect_sign(":");
        hold(a, inside());
        if (!take_sign(",")) break;
      }
      expect_sign("}");
      return a;
    }
    give_back();
    fail(fmt::format("expected a value, not {}", seen()));
  }

  // ( … ): one expression, or a list of several.
  Expression in_parentheses() {
    Expression list = make(Expression::Kind::list, {});
    bool several = sign(")");
    while (!sign(")")) {
      hold(list, inside());
      if (!take_sign(",")) break;
      several = true;
    }
    expect_sign(")");
    return several ? std::move(list) : std::move(list.parts.front());
  }

  Expression places(Expression a) {
    for (;;) {
      if (take_sign(".")) {
        a = make(Expression::Kind::attribute, expect_name(), std::move(a));
      } else if (take_sign("[")) {
        a = bracketed(std::move(a));
      } else if (sign("(")) {
        a = make(Expression::Kind::call, {}, std::move(a));
        arguments(a);
      } else {
        return a;
      }
    }
  }

  Expression bracketed(Expression a) {
    std::vector<Expression> parts;
    bool slices = false;
    const auto missing = [this] { return Expression{.line = here().line}; };  // a constant that is undefined
    do {
      parts.push_back(sign(":") || sign("]") ? missing() : inside());
      slices = slices || sign(":");
    } while (take_sign(":") && parts.size() < 3);
    if (!slices && parts.front().kind == Expression::Kind::constant && parts.front().constant.undefined())
      fail("expected a value, not ']'");
    expect_sign("]");
    a = make(slices ? Expression::Kind::slice : Expression::Kind::subscript, {}, std::move(a));
    if (slices) parts.resize(3, missing());
    for (Expression& part : parts) hold(a, std::move(part));
    return a;
  }

  void arguments(Expression& call) {
    expect_sign("(");
    while (!sign(")")) {
      if (here().kind == Kind::name && here(1).kind == Kind::sign && here(1).text == "=") {
        const std::string name = take().text;
        take();
        call.named.emplace_back(name, inside());
        deepen(call, call.named.back().second);
      } else {
        if (sign("*") || sign("**")) fail("arguments with '*' are not supported", kWithoutIt);
        if (!call.named.empty()) fail("an argument without a name comes after one with a name");
        hold(call, inside());
      }
      if (!take_sign(",")) break;
    }
    expect_sign(")");
  }

  Expression filtered(Expression a) {
    for (;;) {
      if (take_sign("|")) {
        const std::string name = expect_name();
        if (!is_template_filter(name))
          fail(fmt::format("the filter {} is not supported", quote_text(name)), kWithoutIt);
        a = make(Expression::Kind::filter, name, std::move(a));
        if (sign("(")) arguments(a);
      } else if (word("is")) {
        a = tested(std::move(a));
      } else if (sign("(")) {
        a = make(Expression::Kind::call, {}, std::move(a));
        arguments(a);
      } else {
        return a;
      }
    }
  }

  Expression tested(Expression a) {
    take();
    const bool negated = take_word("not");
    const std::string name = expect_name();
    if (!is_template_test(name)) fail(fmt::format("the test {} is not supported", quote_text(name)), kWithoutIt);
    a = make(Expression::Kind::test, name, std::move(a));
    const bool value_follows = here().kind == Kind::string || here().kind == Kind::whole || here().kind == Kind::real ||
                               sign("[") || sign("{") ||
                               (here().kind == Kind::name && !word("else") && !word("or") && !word("and") &&
                                !word("is") && !word("if") && !word("in") && !word("not"));
    if (sign("("))
      arguments(a);
    else if (value_follows)
      hold(a, places(primary()));
    return negated ? make(Expression::Kind::opposite, {}, std::move(a)) : std::move(a);
  }

  template <class... Parts>
  Expression make(Expression::Kind kind, std::string text, Parts... parts) const {
    Expression a{.kind = kind, .line = here().line, .text = std::move(text)};
    (hold(a, std::move(parts)), ...);
    return a;
  }
  void hold(Expression& a, Expression part) const {
    a.parts.push_back(std::move(part));
    deepen(a, a.parts.back());
  }
  void deepen(Expression& a, const Expression& part) const {
    a.depth = std::max(a.depth, part.depth + 1);
    if (a.depth > kDeepestExpression) fail(fmt::format("an expression of more than {} steps", kDeepestExpression));
  }

  int depth_ = 0, loops_ = 0;
  bool no_condition_ = false;
};

}  // namespace

std::vector<TemplateStatement> parse_template(std::string_view source, const std::string& where) {
  if (source.size() > kMostTemplateBytes)
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: the chat template is larger than {} KiB", where, kMostTemplateBytes >> 10),
                    "check that it is the file you meant");
  if (valid_utf8(source) != source.size())
    throw UserError(ExitCode::bad_input_file, where + ": the chat template is not UTF-8", kMendTemplate);
  return Parser(template_tokens(source, where), where).run();
}

}  // namespace lockstep
