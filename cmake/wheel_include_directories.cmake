# Two repairs of include directories; on an apt or source installation neither finds anything to do.
# ROS wheels from PyPI export directories of the machine that built them: those that do not exist
# here are dropped. An environment inside the checkout (.venv) is inside the source tree, which
# CMake refuses in installed targets: such directories are kept for the build only.
get_property(imported_targets DIRECTORY PROPERTY IMPORTED_TARGETS)
get_property(built_targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
foreach(target IN LISTS imported_targets built_targets)
  get_target_property(include_dirs ${target} INTERFACE_INCLUDE_DIRECTORIES)
  if(NOT include_dirs)
    continue()
  endif()
  set(repaired "")
  foreach(dir IN LISTS include_dirs)
    if(dir MATCHES "[$]<")
      list(APPEND repaired "${dir}")
    elseif(target IN_LIST built_targets)
      list(APPEND repaired "$<BUILD_INTERFACE:${dir}>")
    elseif(EXISTS "${dir}")
      list(APPEND repaired "${dir}")
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${repaired}")
endforeach()
