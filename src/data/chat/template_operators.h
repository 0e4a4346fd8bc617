// The operators of chat templates, as Python has them: whole numbers have 64 bits, and what does not fit is refused.
//
// Failure: TemplateError.
#pragma once
#include <string>

#include "data/chat/template_meter.h"
#include "data/chat/template_value.h"

namespace lockstep {

// `sign`: == != in not in < > <= >= ~ + - * / // % **
TemplateValue binary_operation(const std::string& sign, const TemplateValue& a, const TemplateValue& b,
                               TemplateMeter& meter);
TemplateValue signed_number(const TemplateValue& a, bool negative);

// value[begin:end:step]; what is undefined or none is left out.
TemplateValue slice_of(const TemplateValue& value, const TemplateValue& begin, const TemplateValue& end,
                       const TemplateValue& step, TemplateMeter& meter);

}  // namespace lockstep
