// The filters, tests and methods of chat templates. Each does what Jinja's or Python's of that name does.
//
// The meter is charged with what they walk and make.
//
// Failure: TemplateError.
#pragma once
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/template_meter.h"
#include "data/chat/template_value.h"

namespace lockstep {

struct TemplateArguments {
  std::vector<TemplateValue> values;
  std::vector<std::pair<std::string, TemplateValue>> named;

  // The argument at this place or of this name; null: not given.
  const TemplateValue* find(std::size_t place, std::string_view name) const;
  // Refuses others than these.
  void only(std::string_view function, std::span<const std::string_view> names) const;
};

TemplateValue apply_filter(std::string_view name, const TemplateValue& value, const TemplateArguments& arguments,
                           TemplateMeter& meter);
bool apply_test(std::string_view name, const TemplateValue& value, const TemplateArguments& arguments,
                TemplateMeter& meter);
// value.name(arguments), of a string or a dictionary.
TemplateValue call_method(const TemplateValue& value, std::string_view name, const TemplateArguments& arguments,
                          TemplateMeter& meter);

}  // namespace lockstep
