# SPDX-License-Identifier: Apache-2.0
# The sources of one folder are compiled as one file, because most of the time goes into the headers of the standard
# library. Names in anonymous namespaces are therefore unique in a folder. The preset debug compiles each file by itself,
# which proves that every file includes what it uses.
function(cinnabar_unity target)
  if(NOT CINNABAR_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    string(REPLACE "/" "_" group ${folder})
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
