// Runs a chat template: Jinja's rules of names and scopes, over the values it is given.
//
// Beside these it knows range, namespace, dict and raise_exception. strftime_now is not defined, so that a template
// gives the same text on every day; those that ask whether it is (Llama 3's) have a date of their own for it.
//
// A template comes from outside and can loop: it runs at most kMostTemplateSteps, works on at most kMostTemplateWork
// bytes of values (template_meter.h), and its text is at most kMostRenderedBytes (template_value.h).
//
// Failure: UserError (bad_input_file) naming the template and the line; raise_exception's message is the template's
// own.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/template_syntax.h"

namespace lockstep {

inline constexpr std::int64_t kMostTemplateSteps = 1'000'000;

struct RenderedTemplate {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> generated;  // bytes from, to: what {% generation %} encloses
};

RenderedTemplate run_template(const std::vector<TemplateStatement>& statements, TemplateValue::Entries names,
                              const std::string& where);

}  // namespace lockstep
