#include "data/chat/template_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "base/error.h"
#include "data/chat/template_functions.h"
#include "data/chat/template_meter.h"
#include "data/chat/template_operators.h"
#include "data/chat/template_tokens.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

using Expression = TemplateExpression;
using List = TemplateValue::List;
using Statement = TemplateStatement;
using Value = TemplateValue;

constexpr int kDeepestMacro = 100;
constexpr auto kMostRange = static_cast<std::int64_t>(kMostElements);

// What raise_exception says: of the conversation, not of the template.
struct Raised {
  std::string message;
  int line;
};

enum class Flow { on, leave, next };

class Runner {
 public:
  Runner(Value::Entries names, const std::string& where) : where_(where) {
    scopes_.emplace_back();
    for (auto& [name, value] : names) scopes_.back().insert_or_assign(std::move(name), std::move(value));
  }

  RenderedTemplate run(const std::vector<Statement>& statements) {
    try {
      run_all(statements);
    } catch (const TemplateError& error) {
      refuse_template(where_, line_, error.what(), "mend the template or the messages");
    } catch (const Raised& raised) {
      refuse_template(where_, raised.line, fmt::format("it refuses the messages: {}", quote_text(raised.message)),
                      "mend the messages");
    }
    return std::move(out_);
  }

 private:
  using Scope = std::map<std::string, Value, std::less<>>;

  void step(int line) {
    line_ = line;
    if (++steps_ > kMostTemplateSteps)
      throw TemplateError(fmt::format("it takes more than {} steps", kMostTemplateSteps));
  }

  // --- statements

  Flow run_all(const std::vector<Statement>& statements) {
    for (const Statement& statement : statements)
      if (const Flow flow = run_one(statement); flow != Flow::on) return flow;
    return Flow::on;
  }

  Flow run_one(const Statement& s) {
    step(s.line);
    switch (s.kind) {
      case Statement::Kind::text:
        print(s.text);
        break;
      case Statement::Kind::print:
        print(meter_.text(value(s.of[0])));
        break;
      case Statement::Kind::branch:
        for (std::size_t i = 0; i < s.of.size(); ++i)
          if (value(s.of[i]).truth()) return run_all(s.bodies[i]);
        if (s.bodies.size() > s.of.size()) return run_all(s.bodies.back());
        break;
      case Statement::Kind::loop:
        return run_loop(s);
      case Statement::Kind::set:
        assign(s, value(s.of[0]));
        break;
      case Statement::Kind::set_block:
        scopes_.emplace_back();
        {
          Value text = made(captured(s.bodies[0]));
          scopes_.pop_back();
          assign(s, std::move(text));
        }
        break;
      case Statement::Kind::macro:
        scopes_.back().insert_or_assign(s.text, Value(&macros_.emplace_back(TemplateMacro{&s})));
        break;
      case Statement::Kind::leave:
        return Flow::leave;
      case Statement::Kind::next:
        return Flow::next;
      case Statement::Kind::generation: {
        const std::size_t from = out_.text.size();
        const Flow flow = run_all(s.bodies[0]);
        if (captures_ == 0) out_.generated.emplace_back(from, out_.text.size());
        return flow;
      }
    }
    return Flow::on;
  }

  void print(const std::string& text) {
    out_.text += text;
    if (out_.text.size() > kMostRenderedBytes)
      throw TemplateError(fmt::format("its text is longer than {} MiB", kMostRenderedBytes >> 20));
  }

  // What a body prints.
  std::string captured(const std::vector<Statement>& body) {
    std::string outside = std::exchange(out_.text, {});
    ++captures_;
    run_all(body);
    --captures_;
    return std::exchange(out_.text, std::move(outside));
  }

  void assign(const Statement& s, Value value) {
    if (s.field.empty()) {
      scopes_.back().insert_or_assign(s.text, std::move(value));
      return;
    }
    TemplateNamespace* const names = look_up(s.text).names();
    if (!names)
      throw TemplateError(fmt::format("{} is no namespace, whose fields alone can be set", quote_text(s.text)));
    names->insert_or_assign(s.field, std::move(value));
  }

  void bind(const std::vector<std::string>& names, const Value& element) {
    Scope& scope = scopes_.back();
    if (names.size() == 1) {
      scope.insert_or_assign(names[0], element);
      return;
    }
    const List parts = meter_.elements(element);
    if (parts.size() != names.size())
      throw TemplateError(fmt::format("{} values for {} names", parts.size(), names.size()));
    for (std::size_t i = 0; i < parts.size(); ++i) scope.insert_or_assign(names[i], parts[i]);
  }

  Flow run_loop(const Statement& s) {
    List elements = meter_.elements(value(s.of[0]));
    scopes_.emplace_back();
    if (s.of.size() > 1) {
      List kept;
      for (const Value& element : elements) {
        step(s.line);
        bind(s.names, element);
        if (value(s.of[1]).truth()) kept.push_back(element);
      }
      elements = std::move(kept);
    }
    const std::int64_t size = std::ssize(elements);
    for (std::int64_t i = 0; i < size; ++i) {
      step(s.line);
      scopes_.back().clear();  // what an element's turn has set is not the next one's
      bind(s.names, elements[i]);
      const auto neighbour = [&](std::int64_t at, const char* name) {
        return at >= 0 && at < size ? elements[at] : Value(Value::Undefined{name});
      };
      scopes_.back().insert_or_assign("loop", Value(Value::Entries{{"index", i + 1},
                                                                   {"index0", i},
                                                                   {"revindex", size - i},
                                                                   {"revindex0", size - i - 1},
                                                                   {"first", i == 0},
                                                                   {"last", i + 1 == size},
                                                                   {"length", size},
                                                                   {"previtem", neighbour(i - 1, "loop.previtem")},
                                                                   {"nextitem", neighbour(i + 1, "loop.nextitem")}}));
      if (run_all(s.bodies[0]) == Flow::leave) break;
    }
    scopes_.pop_back();
    if (size == 0 && s.bodies.size() > 1) return run_all(s.bodies[1]);
    return Flow::on;
  }

  // --- expressions

  Value look_up(std::string_view name) {
    for (std::size_t i = scopes_.size(); i-- > 0;) {
      if (const auto found = scopes_[i].find(name); found != scopes_[i].end()) {
        return found->second;
      }
      if (i == macro_scope_ && i > 0) i = 1;  // a macro sees its own names and the template's, not its caller's
    }
    return Value::Undefined{std::string(name)};
  }

  Value value(const Expression& e) {
    step(e.line);
    switch (e.kind) {
      case Expression::Kind::constant:
        return e.constant;
      case Expression::Kind::name:
        return look_up(e.text);
      case Expression::Kind::list: {
        List list;
        for (const Expression& part : e.parts) list.push_back(value(part));
        return made(std::move(list));
      }
      case Expression::Kind::entries:
        return made(entries(e));
      case Expression::Kind::negative:
      case Expression::Kind::positive:
        return signed_number(value(e.parts[0]), e.kind == Expression::Kind::negative);
      case Expression::Kind::opposite:
        return !value(e.parts[0]).truth();
      case Expression::Kind::binary: {
        const Value a = value(e.parts[0]);
        return binary_operation(e.text, a, value(e.parts[1]), meter_);
      }
      case Expression::Kind::both: {
        Value a = value(e.parts[0]);
        return a.truth() ? value(e.parts[1]) : a;
      }
      case Expression::Kind::either: {
        Value a = value(e.parts[0]);
        return a.truth() ? a : value(e.parts[1]);
      }
      case Expression::Kind::condition:
        if (value(e.parts[1]).truth()) return value(e.parts[0]);
        return e.parts.size() > 2 ? value(e.parts[2]) : Value();
      case Expression::Kind::attribute:
        return field(value(e.parts[0]), e.text);
      case Expression::Kind::subscript: {
        const Value a = value(e.parts[0]);
        return element(a, value(e.parts[1]));
      }
      case Expression::Kind::slice: {
        const Value a = value(e.parts[0]), begin = value(e.parts[1]), end = value(e.parts[2]);
        return made(slice_of(a, begin, end, value(e.parts[3]), meter_));
      }
      case Expression::Kind::call:
        return call(e);
      case Expression::Kind::filter: {
        const Value a = value(e.parts[0]);
        return apply_filter(e.text, a, arguments(e), meter_);
      }
      case Expression::Kind::test: {
        const Value a = value(e.parts[0]);
        return apply_test(e.text, a, arguments(e), meter_);
      }
    }
    return {};
  }

  Value made(Value value) {
    meter_.charge_made(value);
    return value;
  }

  TemplateArguments arguments(const Expression& e) {
    TemplateArguments all;
    for (std::size_t i = 1; i < e.parts.size(); ++i) all.values.push_back(value(e.parts[i]));
    for (const auto& [name, part] : e.named) all.named.emplace_back(name, value(part));
    return all;
  }

  Value entries(const Expression& e) {
    Value::Entries entries;
    for (std::size_t i = 0; i < e.parts.size(); i += 2) {
      const std::string key = string_of(value(e.parts[i]), "a dictionary's key");
      Value one = value(e.parts[i + 1]);
      meter_.charge(entries.size() * 4);
      const auto found =
          std::find_if(entries.begin(), entries.end(), [&](const auto& pair) { return pair.first == key; });
      if (found != entries.end())
        found->second = std::move(one);
      else
        entries.emplace_back(key, std::move(one));
    }
    return entries;
  }

  Value field(const Value& a, const std::string& name) {
    if (a.undefined())
      throw TemplateError(
          fmt::format("{} is undefined, and has no {}", quote_text(a.get<Value::Undefined>()->name), quote_text(name)));
    if (const auto* entries = a.entries()) meter_.charge(entries->size() * 4);
    const Value* const found = a.find(name);
    return found ? *found : Value(Value::Undefined{name});
  }

  Value element(const Value& a, const Value& at) {
    if (const auto* key = at.get<std::string>()) return field(a, *key);
    if (a.undefined()) return field(a, at.text());
    const auto* list = a.list();
    const auto* text = a.get<std::string>();
    if (!list && !text) return Value::Undefined{at.text()};
    if (text) meter_.charge(text->size());
    const std::int64_t size = a.length();
    std::int64_t i = whole_of(at, "a place");
    if (i < 0) i += size;
    if (i < 0 || i >= size) return Value::Undefined{at.text()};
    if (list) {
      const Value& one = (*list)[static_cast<std::size_t>(i)];
      return one;
    }
    std::size_t from = 0;
    for (; i > 0; --i) from += utf8_bytes((*text)[from]);
    return text->substr(from, utf8_bytes((*text)[from]));
  }

  // --- calls

  Value call(const Expression& e) {
    const Expression& what = e.parts[0];
    if (what.kind == Expression::Kind::attribute) {
      const Value of = value(what.parts[0]);
      if (const auto* entries = of.entries()) meter_.charge(entries->size() * 4);
      const Value* const held = of.find(what.text);
      if (held && held->macro()) return call_macro(*held->macro(), arguments(e));
      if (of.undefined()) return field(of, what.text);
      return made(call_method(of, what.text, arguments(e), meter_));
    }
    const Value function = value(what);
    if (const TemplateMacro* const macro = function.macro()) return call_macro(*macro, arguments(e));
    if (what.kind != Expression::Kind::name) throw TemplateError(fmt::format("{} cannot be called", function.kind()));
    if (!function.undefined())
      throw TemplateError(fmt::format("{} is {}, and cannot be called", quote_text(what.text), function.kind()));
    return made(call_global(what.text, arguments(e), e.line));
  }

  Value call_global(const std::string& name, const TemplateArguments& arguments, int line) {
    if (name == "raise_exception") {
      constexpr std::string_view kNames[] = {"message"};
      arguments.only(name, kNames);
      const Value* const message = arguments.find(0, "message");
      throw Raised{message ? meter_.text(*message) : "", line};
    }
    if (name == "namespace" || name == "dict") {
      arguments.only(name, names_of(arguments));
      if (!arguments.values.empty()) throw TemplateError(fmt::format("'{}' takes named arguments alone", name));
      if (name == "dict") return Value::Entries(arguments.named.begin(), arguments.named.end());
      TemplateNamespace& made = namespaces_.emplace_back();
      for (const auto& [key, one] : arguments.named) made.insert_or_assign(key, one);
      return &made;
    }
    if (name == "range") return range(arguments);
    throw TemplateError(fmt::format("there is no function {}", quote_text(name)));
  }
  static std::vector<std::string_view> names_of(const TemplateArguments& arguments) {
    std::vector<std::string_view> names;
    for (const auto& [name, one] : arguments.named) names.push_back(name);
    return names;
  }

  static Value range(const TemplateArguments& arguments) {
    const std::size_t count = arguments.values.size();
    if (count < 1 || count > 3 || !arguments.named.empty()) throw TemplateError("'range' takes one to three numbers");
    const auto at = [&](std::size_t i) { return whole_of(arguments.values[i], "an argument of 'range'"); };
    const std::int64_t from = count > 1 ? at(0) : 0, to = at(count > 1 ? 1 : 0), by = count > 2 ? at(2) : 1;
    if (by == 0) throw TemplateError("'range' with steps of zero");
    List list;
    for (std::int64_t i = from; by > 0 ? i < to : i > to;) {
      list.emplace_back(i);
      if (std::ssize(list) > kMostRange)
        throw TemplateError(fmt::format("'range' of more than {} numbers", kMostRange));
      if (__builtin_add_overflow(i, by, &i)) break;
    }
    return list;
  }

  Value call_macro(const TemplateMacro& macro, const TemplateArguments& arguments) {
    const Statement& s = *macro.statement;
    if (++macros_deep_ > kDeepestMacro)
      throw TemplateError(fmt::format("macros call each other more than {} deep", kDeepestMacro));
    arguments.only(s.text, std::vector<std::string_view>(s.names.begin(), s.names.end()));
    Scope own;
    const std::size_t required = s.names.size() - s.of.size();
    for (std::size_t i = 0; i < s.names.size(); ++i) {
      const Value* const given = arguments.find(i, s.names[i]);
      own.insert_or_assign(s.names[i], given           ? *given
                                       : i >= required ? value(s.of[i - required])
                                                       : Value(Value::Undefined{s.names[i]}));
    }
    const std::size_t outside = std::exchange(macro_scope_, scopes_.size());
    scopes_.push_back(std::move(own));
    std::string text = captured(s.bodies[0]);
    meter_.charge(text.size());
    scopes_.resize(macro_scope_);
    macro_scope_ = outside;
    --macros_deep_;
    return text;
  }

  const std::string& where_;
  TemplateMeter meter_;
  std::deque<Scope> scopes_;
  std::size_t macro_scope_ = 0;  // the scope of the macro that runs; 0: none
  std::deque<TemplateNamespace> namespaces_;
  std::deque<TemplateMacro> macros_;
  RenderedTemplate out_;
  int captures_ = 0, macros_deep_ = 0, line_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace

RenderedTemplate run_template(const std::vector<TemplateStatement>& statements, TemplateValue::Entries names,
                              const std::string& where) {
  return Runner(std::move(names), where).run(statements);
}

}  // namespace lockstep
