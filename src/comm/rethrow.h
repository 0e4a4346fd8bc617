// Throws a rank's error once more, of the same kind, with another message.
#pragma once
#include <exception>

#include "comm/error.h"

namespace lockstep {

// Within a handler: throws the exception being handled once more, of the same kind (UserError with its code, CommError,
// ProgramError; all others as EnvironmentError), with text(what) in place of its message.
template <class Text>
[[noreturn]] void rethrow_with(const Text& text) {
  try {
    throw;
  } catch (const UserError& error) {
    throw UserError(error.code(), text(error.what()), "");
  } catch (const CommError& error) {
    throw CommError(text(error.what()), error.secondary());
  } catch (const ProgramError& error) {
    throw ProgramError(text(error.what()));
  } catch (const std::exception& error) {
    throw EnvironmentError(text(error.what()));
  } catch (...) {
    throw EnvironmentError(text("an exception without a message"));
  }
}

}  // namespace lockstep
