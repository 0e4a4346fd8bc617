// Chat templates give the text that Jinja gives, and what is wrong with one is one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/chat/chat_template.h"
#include "data/chat/template_meter.h"
#include "data/temp_folder.h"
#include "support/golden.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using OrderedJson = nlohmann::ordered_json;

const TemplateValue::Entries kTokens{{"bos_token", std::string("<s>")}, {"eos_token", std::string("</s>")}};
const OrderedJson kHello = OrderedJson::array({{{"role", "user"}, {"content", "Hello!"}}});

std::string rendered(const std::string& source, const OrderedJson& messages = kHello,
                     AnswerBegins answer = AnswerBegins::no) {
  return ChatTemplate(source, kTokens, "chat.jinja").render(messages, answer).text;
}

// tests/golden/chat_templates/make_cases.py has the templates, and made the texts with Jinja itself.
TEST(ChatTemplates, GiveWhatJinjaGives) {
  const OrderedJson cases = OrderedJson::parse(bytes_of(tests::kGolden + "chat_templates/cases.json"));
  ASSERT_GT(cases.size(), 90u);
  for (const OrderedJson& one : cases) {
    const auto render = [&] {
      return rendered(one["template"], one["messages"],
                      one["add_generation_prompt"].get<bool>() ? AnswerBegins::yes : AnswerBegins::no);
    };
    if (one.contains("refused")) {
      EXPECT_THAT(user_error([&] { (void)render(); }), HasSubstr("chat.jinja: line ")) << one["template"];
      continue;
    }
    try {
      EXPECT_EQ(render(), one["text"].get<std::string>()) << one["template"];
    } catch (const UserError& error) {
      ADD_FAILURE() << error.what() << "\n" << one["template"];
    }
  }
}

TEST(ChatTemplates, SayWhichBytesAreAnswers) {
  const ChatTemplate chat(
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}|"
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
      {}, "chat.jinja");
  const OrderedJson talk = OrderedJson::array({{{"role", "user"}, {"content", "é"}},
                                               {{"role", "assistant"}, {"content", "one"}},
                                               {{"role", "user"}, {"content", "?"}},
                                               {{"role", "assistant"}, {"content", ""}}});
  const RenderedTemplate all = chat.render(talk, AnswerBegins::no);
  std::vector<std::string> answers;
  for (const auto& [from, to] : all.generated) answers.push_back(all.text.substr(from, to - from));
  EXPECT_EQ(answers, (std::vector<std::string>{"one|", "|"}));
}

TEST(ChatTemplates, RefuseWhatIsNotSupportedByItsName) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"{% include 'x' %}",
       "line 1 of the chat template: the statement 'include' is not supported; write the template"},
      {"\n{% call f() %}{% endcall %}", "line 2 of the chat template: the statement 'call'"},
      {"{% raw %}{% endraw %}", "the statement 'raw'"},
      {"{{ x|frobnicate }}", "the filter 'frobnicate' is not supported"},
      {"{{ x is frobbed }}", "the test 'frobbed' is not supported"},
      {"{{ [1]|map('frobnicate')|list }}", "the filter 'frobnicate'"},
      {"{{ frob(1) }}", "there is no function 'frob'"},
      {"{% for x in y recursive %}{% endfor %}", "recursive loops"},
      {"{% set a, b = 1, 2 %}", "setting several names"},
      {"{{ f(*x) }}", "arguments with '*'"},
      {"{{ 'É'|lower }}", "letters outside of ASCII"},
      {"{{ 'x'.encode() }}", "a string has no 'encode'"},
      {"{{ messages[0].pop('role') }}", "a dictionary has no 'pop'"},
      {"{{ ''.__class__ }}", ""},  // undefined, as any name that is not there
      {"{{ ''.__class__.__mro__ }}", "'__class__' is undefined, and has no '__mro__'"},
      {"{{ [1]|tojson(sort_keys=true) }}", "'tojson' with 'sort_keys'"},
  };
  for (const auto& [source, says] : kWrong) {
    const std::string message = user_error([&, source = source] { (void)rendered(source); });
    if (*says == '\0')
      EXPECT_EQ(message, "") << source;
    else
      EXPECT_THAT(message, HasSubstr(says)) << source;
  }
}

TEST(ChatTemplates, WhatIsNoTemplateIsOneLineWithItsPlace) {
  for (const char* source : {"{{",
                             "{{ 1",
                             "{% if %}",
                             "{% if true %}",
                             "{% if true %}{% else %}",
                             "{% endif %}",
                             "{% for %}{% endfor %}",
                             "{% for x y %}{% endfor %}",
                             "{% for x in [1] %}",
                             "{% else %}",
                             "{%",
                             "{#",
                             "{{ 'a }}",
                             "{{ 'a\\",
                             "{{ [1 }}",
                             "{{ (1 }}",
                             "{{ {1 }}",
                             "{{ 1] }}",
                             "{{ a b }}",
                             "{{ 1 + }}",
                             "{{ * 2 }}",
                             "{{ a. }}",
                             "{{ a[] }}",
                             "{{ a|}}",
                             "{{ a is }}",
                             "{{ ? }}",
                             "{{ 99999999999999999999 }}",
                             "{{ '\\x4' }}",
                             "{{ '\\uD800' }}",
                             "{% set %}",
                             "{% set x = %}",
                             "{% set x %}",
                             "{% macro %}{% endmacro %}",
                             "{% macro f(a %}{% endmacro %}",
                             "{% macro f(a=1, b) %}{% endmacro %}",
                             "{% break %}",
                             "{% 1 %}",
                             "{{ f(a=1, 2) }}",
                             "{{ {1: 2} }}",
                             "{% set x.y = 1 %}",
                             "{{ 9223372036854775807 + 1 }}",
                             "{{ [1,2,3][::0] }}",
                             "{{ range(1, 2, 0) }}",
                             "{{ namespace(1) }}",
                             "{{ 1(2) }}",
                             "{{ messages() }}",
                             "{% generation %}",
                             "\xff",
                             "{{ '\xc3' }}"})
    EXPECT_THAT(user_error([&] { (void)rendered(source); }), testing::AllOf(HasSubstr("chat.jinja: "), HasSubstr("; ")))
        << source;
}

// Whatever a template does, it ends, in bounded memory.
TEST(ChatTemplates, AreBounded) {
  const std::string deep(400, '('), closed(400, ')'), depth(600, '-');
  std::string chain = "1", nested;
  for (int i = 0; i < 2000; ++i) chain += "+1";
  for (int i = 0; i < 300; ++i) nested += "{% if 1 %}";
  const std::pair<std::string, const char*> kLarge[] = {
      {"{{ " + deep + "1" + closed + " }}", "nested deeper"},
      {"{{ " + depth + "1 }}", "nested deeper"},
      {"{{ " + chain + " }}", "more than 500 steps"},
      {nested, "nested deeper"},
      {"{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}", "more than 1000000 steps"},
      {"{{ range(10000000)|list|length }}", "more than 1000000 numbers"},
      {"{% set n = namespace(t='x' * 1000) %}{% for i in range(100) %}{% set n.t = n.t + n.t %}{% endfor %}",
       "becomes too long"},
      {"{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}", "longer than 64 MiB"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "more than 100 deep"},
      {"{% for i in range(900000) %}{% set t = 'x' * 60000000 %}{% endfor %}", "more than 256 MiB of values"},
      {"{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l] %}{% endfor %}", "100 deep"},
      {"{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
       "more than 256 MiB of values"},
      {"{{ ('x' * 2000000)|list }}", "more than 1000000 elements"},
      {"{{ ('x' * 60000000).split('x') }}", "becomes too long"},
      {std::string(kMostTemplateBytes + 1, 'x'), "larger than 1024 KiB"},
  };
  for (const auto& [source, says] : kLarge)
    EXPECT_THAT(user_error([&, &source = source] { (void)rendered(source); }), HasSubstr(says)) << source.substr(0, 60);
}

// 2 MiB in 1,000 messages: far more than a model reads, and no template of the five families takes it for an attack.
TEST(ChatTemplates, TakeLongConversations) {
  OrderedJson talk = OrderedJson::array();
  for (int i = 0; i < 1000; ++i)
    talk.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(2000, 'x') + " é"}});
  const OrderedJson cases = OrderedJson::parse(bytes_of(tests::kGolden + "chat_templates/cases.json"));
  int whole = 0;
  for (const OrderedJson& one : cases) {
    std::string text;
    const std::string message = user_error([&] { text = rendered(one["template"], talk); });
    for (const char* bound : {"more than", "too long", "longer than"})
      EXPECT_THAT(message, testing::Not(HasSubstr(bound))) << one["template"];
    whole += text.size() > 2'000'000;
  }
  EXPECT_GE(whole, 5);
}

class ChatTemplateFolder : public TempFolder {};

TEST_F(ChatTemplateFolder, AreFoundWhereHuggingFacePutsThem) {
  const auto found = [&](std::string_view prefix = "") {
    const auto chat = ChatTemplate::find(folder_, prefix);
    return chat ? chat->render(kHello, AnswerBegins::no).text : "none";
  };
  EXPECT_EQ(found(), "none");
  write("chat_template.json", R"({"chat_template": "json {{ messages[0].content }}"})");
  EXPECT_EQ(found(), "json Hello!");
  write("tokenizer_config.json", R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>"})");
  EXPECT_EQ(found(), "json Hello!");
  write("tokenizer_config.json", R"({"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "<e>",
      "chat_template": "{{ bos_token }}config{{ eos_token }}"})");
  EXPECT_EQ(found(), "<b>config<e>");
  write("tokenizer_config.json", R"({"bos_token": "<b>", "chat_template": [
      {"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ bos_token }}default"}]})");
  EXPECT_EQ(found(), "<b>default");
  write("chat_template.jinja", "{{ bos_token }}file\n");
  EXPECT_EQ(found(), "<b>file");
  EXPECT_EQ(found("hf-"), "none");
  write("hf-chat_template.jinja", "kept");
  EXPECT_EQ(found("hf-"), "kept");
}

TEST_F(ChatTemplateFolder, AWrongFileIsNamed) {
  const auto message = [&] { return user_error([&] { (void)ChatTemplate::find(folder_); }); };
  write("tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_THAT(message(), HasSubstr("tokenizer_config.json: "));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "other", "template": "x"}]})");
  EXPECT_THAT(message(), HasSubstr("none of these templates is named 'default'"));
  write("tokenizer_config.json", "{");
  EXPECT_THAT(message(), HasSubstr("not valid JSON"));
  write("tokenizer_config.json", "{}");
  write("chat_template.jinja", "{% if %}");
  EXPECT_THAT(message(), HasSubstr("chat_template.jinja: line 1 of the chat template"));
}

// A list that holds another twice, and that another, weighs what a number of 64 bits hardly holds; times as many
// elements as there are, it is no number of 64 bits any more.
TEST(TemplateMeter, IsNotDeceivedByAProductThatIsTooLargeANumber) {
  using Value = TemplateValue;
  const std::size_t each = Value(Value::List{Value(std::string())}).size().shallow;
  std::size_t weight = 1;
  while (weight <= 2 * each) weight *= 2;
  Value value(std::string(weight - 2 * each, 'x'));
  for (; weight < std::size_t{1} << 58; weight *= 2) value = Value(Value::List{value, value});
  const Value heavy(Value::List{value, Value(std::string())});
  ASSERT_EQ(heavy.weight(), weight);
  const Value all(Value::List(64, heavy));
  TemplateMeter meter;
  EXPECT_THROW(meter.contains(all, heavy), TemplateError);
}

TEST(Messages, AreAListWithRoles) {
  EXPECT_EQ(parse_messages(R"([{"role": "user", "content": "x"}])", "f").size(), 1u);
  EXPECT_EQ(parse_messages(R"({"id": 4, "messages": [{"role": "user", "content": "x"}]})", "f").size(), 1u);
  for (const std::string& wrong :
       {std::string(""), std::string("{"), std::string("[]"), std::string("3"), std::string("{}"),
        std::string(R"({"messages": 3})"), std::string("[3]"), std::string("[{}]"), std::string(R"([{"role": 3}])"),
        std::string(100, '['), std::string("[1e999]")})
    EXPECT_THAT(user_error([&] { (void)parse_messages(wrong, "talk.json"); }),
                testing::AllOf(HasSubstr("talk.json"), HasSubstr("; write ")))
        << wrong;
}

}  // namespace
}  // namespace lockstep
